-- The health of a MachineHealthCheck, whether Cluster API or kubemend acts on it. Unhealthy machines alone do not make it Degraded: only a
-- check that cannot or may not do its work is Degraded. Argo CD runs this without Lua's library "string".
local status = obj.status or {}
local conditions = status.conditions or {}
if status.v1beta2 ~= nil and status.v1beta2.conditions ~= nil then
  conditions = status.v1beta2.conditions
end

local function condition(name)
  for _, c in ipairs(conditions) do
    if c.type == name then
      return c
    end
  end
  return {}
end

local function health(name, message)
  return {status = name, message = message or ""}
end

local annotations = obj.metadata.annotations or {}
local paused = annotations["cluster.x-k8s.io/paused"]
if paused ~= nil and paused ~= "kubemend" then
  return health("Suspended", "Paused by its annotation cluster.x-k8s.io/paused: no controller acts on it")
end

local allowed = condition("RemediationAllowed")
local wrong = {InvalidLimit = true, InvalidSelector = true}
if allowed.status == "False" and wrong[allowed.reason] then
  return health("Degraded", allowed.message)
end
if allowed.status == "False" and allowed.reason == "ClusterNotFound" then
  return health("Progressing", allowed.message)
end
for _, name in ipairs({"RemediationTemplateAvailable", "TargetsExclusive", "Effective"}) do
  local c = condition(name)
  if c.status == "False" then
    return health("Degraded", c.message)
  end
end

if status.observedGeneration == nil or status.observedGeneration < obj.metadata.generation then
  return health("Progressing", "Waiting for its reconcile")
end

local reachable = condition("WorkloadClusterReachable")
if reachable.status == "False" then
  return health("Degraded", reachable.message)
end
if reachable.status == "Unknown" then
  return health("Progressing", reachable.message)
end

if allowed.status == "False" then
  return health("Degraded", allowed.message)
end

local expected, healthy = status.expectedMachines or 0, status.currentHealthy or 0
local count = healthy .. " of " .. expected .. " machines are healthy"
if healthy ~= expected then
  return health("Progressing", count .. "; the others are starting, pending or being remediated")
end
return health("Healthy", count)

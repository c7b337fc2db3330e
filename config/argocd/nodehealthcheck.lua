-- The health of a NodeHealthCheck of kubemend or of medik8s' operator. Unhealthy nodes alone do not make it Degraded.
local status = obj.status or {}

local function condition(name)
  for _, c in ipairs(status.conditions or {}) do
    if c.type == name then
      return c
    end
  end
  return {}
end

local function health(name, message)
  return {status = name, message = message or status.reason or ""}
end

if status.phase == nil then
  return health("Progressing", "Waiting for its first reconcile")
end
if status.phase == "Disabled" then
  return health("Degraded", condition("Disabled").message)
end
if status.phase == "Paused" then
  return health("Suspended")
end

local allowed = condition("RemediationAllowed")
if allowed.status == "False" then
  local states = {TooManyUnhealthy = "Degraded", KindUnreadable = "Degraded"}
  return health(states[allowed.reason] or "Progressing", allowed.message)
end
if status.phase == "Remediating" then
  return health("Progressing")
end

local observed, healthy = status.observedNodes or 0, status.healthyNodes or 0
local count = healthy .. " of " .. observed .. " nodes are healthy"
if healthy ~= observed then
  return health("Progressing", count)
end
return health("Healthy", count)

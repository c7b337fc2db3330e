-- The health of a HostRemediation or a Metal3Remediation. CAPM3's CRD may drop the conditions; then this uses the phase.
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
  return {status = name, message = message or status.message or ""}
end

local succeeded, processing = condition("Succeeded"), condition("Processing")
if succeeded.status == "True" then
  return health("Healthy", succeeded.message)
end
if succeeded.status == "False" then
  return health("Degraded", succeeded.message)
end
if processing.reason == "Paused" then
  return health("Suspended", processing.message)
end
if status.phase == "Failed" or status.phase == "Deleting machine" then
  return health("Degraded")
end
if status.phase == nil then
  return health("Progressing", "Waiting for its first reconcile")
end
return health("Progressing", processing.message)

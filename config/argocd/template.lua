-- A HostRemediationTemplate or a Metal3RemediationTemplate has no status: it is only read when a remediation is created.
return {status = "Healthy", message = ""}

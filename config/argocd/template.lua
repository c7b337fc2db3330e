-- A HostRemediationTemplate or a Metal3RemediationTemplate has no status: it is read when a remediation is made.
return {status = "Healthy", message = ""}

package rig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// auditPolicy says what is noted: every request of kubemend, with what it writes, and no other. Watches are noted when they begin, since
// they may outlast the test.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  users: [%q, %q]
- level: None
`

// auditFlags make the API server note what kubemend asks of it; none unless it was asked for.
func (c *ControlPlane) auditFlags() ([]string, error) {
	if !c.audit {
		return nil, nil
	}
	policy := c.path("audit-policy.yaml")
	if err := os.WriteFile(policy, fmt.Appendf(nil, auditPolicy, Account, WorkloadUser), 0o600); err != nil {
		return nil, fmt.Errorf("write the audit policy: %w", err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + c.auditLog()}, nil
}

func (c *ControlPlane) auditLog() string { return c.path("audit.log") }

// Audited are the requests of kubemend so far, as Account and as WorkloadUser, in the order in which they were answered. It is an error
// unless the control plane was started with Audit.
func (c *ControlPlane) Audited() ([]auditv1.Event, error) {
	content, err := os.ReadFile(c.auditLog())
	if err != nil {
		return nil, fmt.Errorf("read what %s has noted: %w", c.name, err)
	}
	// The last line may be on its way.
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	var events []auditv1.Event
	for lines := json.NewDecoder(bytes.NewReader(content)); ; {
		var e auditv1.Event
		err := lines.Decode(&e)
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what %s has noted: %w", c.name, err)
		}
		events = append(events, e)
	}
}

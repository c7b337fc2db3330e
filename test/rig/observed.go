package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

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

// Stored returns what etcd holds under a key, such as "/registry/kubemend.io/hostremediations/default/node-1": an object as it was last
// written, in the version that it is stored in, whatever the API server makes of it for its readers.
func (c *ControlPlane) Stored(ctx context.Context, key string) ([]byte, error) {
	question, err := json.Marshal(map[string][]byte{"key": []byte(key)})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.etcdPort.address()+"/v3/kv/range", bytes.NewReader(question))
	if err != nil {
		return nil, err
	}
	body, err := answered(http.DefaultClient, request)
	if err != nil {
		return nil, err
	}
	var answer struct {
		KVs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read %s from etcd: %w", key, err)
	}
	if len(answer.KVs) == 0 {
		return nil, fmt.Errorf("read %s from etcd: there is nothing", key)
	}
	return answer.KVs[0].Value, nil
}

// Listening counts the sockets on which the programs of the rig listen, and names the addresses of those that are not on loopback, as the
// kernel writes them. Only Linux reports them.
func (r *Rig) Listening() (sockets int, exposed []string, err error) {
	ours := map[string]bool{}
	for _, process := range processesOf(r.folder) {
		handles, _ := filepath.Glob("/proc/" + process + "/fd/*") // only a bad pattern is an error
		for _, handle := range handles {
			to, _ := os.Readlink(handle) // a connection may be closed meanwhile
			if inode, ok := strings.CutPrefix(to, "socket:["); ok {
				ours[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	for table, loopback := range map[string]string{"/proc/net/tcp": "0100007F:", "/proc/net/tcp6": strings.Repeat("0", 24) + "01000000:"} {
		content, err := os.ReadFile(table)
		if err != nil && len(ours) > 0 {
			return 0, nil, fmt.Errorf("read who listens: %w", err)
		}
		for line := range bytes.Lines(content) {
			const address, state, inode, listening = 1, 3, 9, "0A"
			words := strings.Fields(string(line))
			if len(words) <= inode || words[state] != listening || !ours[words[inode]] {
				continue
			}
			sockets++
			if !strings.HasPrefix(words[address], loopback) {
				exposed = append(exposed, words[address])
			}
		}
	}
	return sockets, exposed, nil
}

// processesOf are the numbers of the processes that were started with the folder on their command line: everything that
// a rig runs is. Only Linux reports that.
func processesOf(folder string) []string {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // only a bad pattern is an error
	var found []string
	for _, line := range lines {
		content, err := os.ReadFile(line)
		if err == nil && bytes.Contains(content, []byte(folder)) {
			found = append(found, filepath.Base(filepath.Dir(line)))
		}
	}
	return found
}

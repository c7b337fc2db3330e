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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
)

// managerReady is the timeout for a manager to become ready.
const managerReady = 3 * time.Minute

// ManagerOptions are the options of a manager.
type ManagerOptions struct {
	// Name is unique among the managers of a control plane.
	Name string
	// Binary is the path of the program. It must have the common flags of Cluster API's managers: --kubeconfig, --health-addr,
	// --diagnostics-address and --insecure-diagnostics.
	Binary string
	// Kubeconfig is the content of a kubeconfig; the administrator's if nil.
	Kubeconfig []byte
	// Args are further flags.
	Args []string
	// Unready makes Manager return before the program is ready, which it may never be.
	Unready bool
}

// Manager is a controller manager in its own process.
type Manager struct {
	plane *ControlPlane
	key   program
	// Metrics is the URL of its metrics. Health is the URL of its health endpoints without their paths.
	Metrics, Health string
	// Log is the path of its log file.
	Log string
}

// Manager starts a manager for this control plane and returns when it is ready. It ends at the latest with the control plane.
func (c *ControlPlane) Manager(ctx context.Context, o ManagerOptions) (*Manager, error) {
	if o.Kubeconfig == nil {
		o.Kubeconfig = c.Kubeconfig()
	}
	file := c.path(o.Name + ".kubeconfig")
	if err := os.WriteFile(file, o.Kubeconfig, 0o600); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	health, err := c.reservePort()
	if err != nil {
		return nil, err
	}
	diagnostics, err := c.reservePort()
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"--kubeconfig=" + file, "--health-addr=" + health.address(),
		"--diagnostics-address=" + diagnostics.address(), "--insecure-diagnostics",
	}, o.Args...)
	m := &Manager{plane: c, key: program(o.Name), Metrics: "http://" + diagnostics.address() + "/metrics",
		Health: "http://" + health.address()}
	p, err := c.launch(m.key, o.Binary, args)
	if err != nil {
		return nil, err
	}
	m.Log = p.log
	if o.Unready {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, managerReady)
	defer cancel()
	if err := p.await(ctx, m.Ready); err != nil {
		m.Kill()
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	return m, nil
}

// Kill kills the manager, like a crash.
func (m *Manager) Kill() { m.plane.end(m.key) }

// Ready returns nil if the manager is ready, and else an error with its answer.
func (m *Manager) Ready(ctx context.Context) error {
	return answersOK(http.DefaultClient, m.Health+"/readyz")(ctx)
}

// Scrape returns the manager's metrics in the text format.
func (m *Manager) Scrape(ctx context.Context) (string, error) {
	body, err := fetch(ctx, http.DefaultClient, m.Metrics)
	return string(body), err
}

func fetch(ctx context.Context, c *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	// Compressing the metrics takes the server longer than collecting them.
	request.Header.Set("Accept-Encoding", "identity")
	return answered(c, request)
}

func answered(c *http.Client, request *http.Request) ([]byte, error) {
	url := request.URL
	response, err := c.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: %s: %s", url, response.Status, body[:min(len(body), logTail)])
	}
	return body, nil
}

// Kubemend is kubemend's own manager in its own process, built by `make build`.
type Kubemend = Manager

// Kubemend starts kubemend's manager for this control plane with a kubeconfig (the administrator's if nil) and returns when its caches are
// filled. It ends at the latest with the control plane. name must be unique. If Namespace exists, the manager keeps its leases there, as
// when it is installed.
func (c *ControlPlane) Kubemend(ctx context.Context, name string, kubeconfig []byte, args ...string) (*Kubemend, error) {
	return c.kubemend(ctx, ManagerOptions{Name: name, Kubeconfig: kubeconfig, Args: args})
}

// Leaving starts the manager with --teardown. It returns at once: the manager becomes ready when it has removed everything.
func (c *ControlPlane) Leaving(ctx context.Context, name string, kubeconfig []byte, args ...string) (*Kubemend, error) {
	return c.kubemend(ctx, ManagerOptions{Name: name, Kubeconfig: kubeconfig, Args: append([]string{"--teardown"}, args...), Unready: true})
}

func (c *ControlPlane) kubemend(ctx context.Context, o ManagerOptions) (*Kubemend, error) {
	o.Name, o.Binary = "kubemend-"+o.Name, filepath.Join(c.rig.root, "bin", "manager")
	if err := built(ctx); err != nil {
		return nil, fmt.Errorf("start kubemend: %w", err)
	}
	if _, err := os.Stat(o.Binary); err != nil {
		return nil, fmt.Errorf("start kubemend: %w: run make build", err)
	}
	installed, err := c.hasNamespace(ctx)
	if err != nil {
		return nil, fmt.Errorf("start kubemend: %w", err)
	}
	// Before o.Args, which may override them. Simulated kubelets report at once.
	args := []string{"--node-monitor-grace-period=0s"}
	if installed {
		args = append(args, "--leader-elect-namespace="+Namespace)
	}
	o.Args = append(args, o.Args...)
	return c.Manager(ctx, o)
}

func (c *ControlPlane) hasNamespace(ctx context.Context) (bool, error) {
	clientset, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return false, fmt.Errorf("make a client for %s: %w", c.name, err)
	}
	_, err = clientset.CoreV1().Namespaces().Get(ctx, Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the namespace %s: %w", Namespace, err)
	}
	return true, nil
}

// WebhookFlags returns the flags of the one manager that serves the API server's webhooks; none if there are no webhooks. See
// ManagementOptions.Webhooks and Trust.
func (c *ControlPlane) WebhookFlags() []string {
	if c.ours == nil {
		return nil
	}
	return append(c.ours.flags(c), "--webhook-host=127.0.0.1")
}

// auditPolicy records every request of kubemend with the object that it writes, and no other request. It records a watch at its beginning,
// because a watch may last longer than the test.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  users: [%q, %q]
- level: None
`

// auditFlags returns the flags that make the API server record kubemend's requests; none without Audit.
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

// Audited returns the requests of kubemend so far, by Account and by WorkloadUser, in the order in which the API server answered them. It
// fails if the control plane was started without Audit.
func (c *ControlPlane) Audited() ([]auditv1.Event, error) {
	content, err := os.ReadFile(c.auditLog())
	if err != nil {
		return nil, fmt.Errorf("read what %s has noted: %w", c.name, err)
	}
	// The API server may still write the last line.
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

// Stored returns the value of a key in etcd, such as "/registry/kubemend.io/hostremediations/default/node-1": an object as it is stored, in
// the stored version and without conversion.
func (c *ControlPlane) Stored(ctx context.Context, key string) ([]byte, error) {
	question, err := json.Marshal(map[string][]byte{"key": []byte(key)})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.etcdPort.address()+"/v3/kv/range",
		bytes.NewReader(question))
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

// Listening returns how many sockets the programs of the rig listen on, and the addresses of those that are not on loopback, in the form of
// the kernel. It works only on Linux.
func (r *Rig) Listening() (sockets int, exposed []string, err error) {
	ours := map[string]bool{}
	for _, process := range processesOf(r.folder) {
		handles, _ := filepath.Glob("/proc/" + process + "/fd/*") // only a bad pattern is an error
		for _, handle := range handles {
			to, _ := os.Readlink(handle) // the connection may have been closed
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

// processesOf returns the IDs of the processes with the folder on their command line, as all programs of a rig have it. It works only on
// Linux.
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

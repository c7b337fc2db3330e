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

// managerReady bounds how long a manager may take until it says that it is ready.
const managerReady = 3 * time.Minute

// ManagerOptions say which manager is started.
type ManagerOptions struct {
	// Name distinguishes the managers of a control plane.
	Name string
	// Binary is the path of the program. It takes the flags that the managers of Cluster API have in common:
	// --kubeconfig, --health-addr, --diagnostics-address and --insecure-diagnostics.
	Binary string
	// Kubeconfig is the administrator's if it is nil.
	Kubeconfig []byte
	// Args are more flags.
	Args []string
	// Unready does not wait until the program is ready: it may never be.
	Unready bool
}

// Manager is a controller manager as a process of its own.
type Manager struct {
	plane *ControlPlane
	key   program
	// Metrics is the URL of its metrics, Health that of its health endpoints without their paths.
	Metrics, Health string
	// Log is the file that it logs to.
	Log string
}

// Manager starts a manager against this control plane and returns when it is ready. It ends with the control plane, at
// the latest.
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

// Kill ends the manager at once, as a crash would.
func (m *Manager) Kill() { m.plane.end(m.key) }

// Ready is nil if the manager says that it is ready; the error has its answer.
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
	// Compressing a page of metrics takes the server longer than making it.
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

// Kubemend is kubemend's own manager as a process of its own, built by `make build`.
type Kubemend = Manager

// Kubemend starts the manager against this control plane with the given kubeconfig (the administrator's if it is nil) and returns when its
// caches are filled. It ends with the control plane, at the latest. Names distinguish several managers. Where there is Namespace it
// announces itself there, as it does where it is installed.
func (c *ControlPlane) Kubemend(ctx context.Context, name string, kubeconfig []byte, args ...string) (*Kubemend, error) {
	return c.kubemend(ctx, ManagerOptions{Name: name, Kubeconfig: kubeconfig, Args: args})
}

// Leaving starts the manager as Kubemend does, to take everything back. It returns at once: the manager is ready when it has.
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
	// In front: who says another one means that. Simulated kubelets report at once.
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

// WebhookFlags are the flags of the one manager that answers the API server's webhooks; none without webhooks. See
// ManagementOptions.Webhooks and Trust.
func (c *ControlPlane) WebhookFlags() []string {
	if c.ours == nil {
		return nil
	}
	return append(c.ours.flags(c), "--webhook-host=127.0.0.1")
}

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

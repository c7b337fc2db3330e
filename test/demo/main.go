// Command demo shows kubemend in action with a real control plane, the real manager and Cluster API's own controllers. Only the hosts and
// their kubelets are simulated.
//
// Two environment variables, which `make demo KEEP=1 SCENE=replace` sets, are its settings: SCENE is the name of a scene, or all. KEEP
// leaves everything running at the end, with a prompt.
//
// Each printed line reports a change of an object, or an event. If an expected change misses its deadline, the scene fails and the exit
// code is 1. After Ctrl-C it is 130.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kubemend/kubemend/test/simulator"
)

const (
	failed      = 1
	interrupted = 130
)

func main() {
	// When the control plane stops, libraries log errors that mean nothing to the user.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := perform(ctx, newNarrator(os.Stdout))
	cancel()
	os.Exit(code)
}

// perform plays the chosen scenes in a new environment and returns the exit code.
func perform(ctx context.Context, n *narrator) int {
	began := time.Now()
	chosen, err := choose(os.Getenv("SCENE"))
	if err != nil {
		n.note("%v", err)
		return failed
	}
	s, err := start(ctx, n)
	if err == nil {
		err = s.play(ctx, chosen)
	}
	code := 0
	switch {
	case ctx.Err() != nil:
		n.verdict("Interrupted: stopping everything.")
		code = interrupted
	case err != nil:
		n.verdict(fmt.Sprintf("Failed: %v", err))
		s.showWhy()
		code = failed
	default:
		n.verdict(fmt.Sprintf("Success: everything happened as expected, in %.0f s.", time.Since(began).Seconds()))
	}
	if keep := os.Getenv("KEEP"); keep != "" && keep != "0" && ctx.Err() == nil {
		s.keep(ctx, os.Stdin)
	}
	if err := s.stop(); err != nil {
		n.note("The environment was not removed completely: %v", err)
		code = max(code, failed)
	}
	return code
}

const commands = `Commands: stop <machine>...     stop kubelets; the power of their hosts stays on
          start <machine>...    start kubelets again
          quit                  (or Ctrl-C) stop everything`

const guide = `In another terminal:

  export KUBECONFIG=%[1]s

Inspect, after "make build":

  bin/kubectl-mend status
  bin/kubectl-mend explain machine/NAME
  kubectl get machinehealthchecks,machinesets,machines,baremetalhosts,nodes,pods
  kubectl get hostremediations --watch
  kubectl describe machinehealthcheck %[2]s
  kubectl events --watch
  kubectl get volumeattachments --watch
  curl -s %[3]s | grep ^kubemend_
  less +F %[4]s

Try this, with the name of a machine, which is also that of its node, for NAME:

  kubectl annotate machine NAME cluster.x-k8s.io/remediate-machine=    (remediated now)
  kubectl annotate machine NAME cluster.x-k8s.io/skip-remediation=     (left alone)
  kubectl edit machinehealthcheck %[2]s
  kubectl delete node NAME                                             (unhealthy at once)

%[5]s
`

// keep leaves everything running until the user quits.
func (s *environment) keep(ctx context.Context, in io.Reader) {
	if s.manager == nil {
		return // the environment has failed to start
	}
	s.narrator.heading("Everything keeps running", "Changes are still printed here, with the time since the last stop.")
	s.narrator.note(guide, s.plane.KubeconfigFile(), checkName, s.manager.Metrics, s.manager.Log, commands)
	typed := linesOf(ctx, in)
	for {
		select {
		case <-ctx.Done():
			return
		case line, more := <-typed:
			switch {
			case !more:
				typed = nil // no more commands; Ctrl-C still works
			case line == "quit":
				return
			default:
				if err := s.obey(strings.Fields(line)); err != nil {
					s.narrator.note("%v", err)
				}
			}
		}
	}
}

// linesOf returns a channel of the lines of in. It is closed when there are no more lines or the context ends.
func linesOf(ctx context.Context, in io.Reader) <-chan string {
	typed := make(chan string)
	go func() {
		defer close(typed)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			select {
			case typed <- strings.TrimSpace(lines.Text()):
			case <-ctx.Done():
				return
			}
		}
	}()
	return typed
}

func (s *environment) obey(words []string) error {
	switch {
	case len(words) == 0:
		return nil
	case len(words) > 1 && words[0] == "stop":
		s.narrator.countFrom(time.Now())
		return s.eachKubelet(words[1:], (*simulator.Kubelet).Stop)
	case len(words) > 1 && words[0] == "start":
		for _, machine := range words[1:] {
			host, err := s.host(machine)
			if err != nil {
				return err
			}
			// The kubelet of a host that is off starts when the host boots.
			if kubelet := host.Kubelet(); kubelet != nil && host.Powered() {
				kubelet.Start()
			}
		}
		return nil
	}
	return fmt.Errorf("%q is not a command.\n%s", strings.Join(words, " "), commands)
}

// logLines is the number of lines of the manager's log that a failure shows.
const logLines = 25

// showWhy shows the last lines of the manager's log. With KEEP=1 the user can inspect the objects too.
func (s *environment) showWhy() {
	if s.manager == nil {
		return
	}
	content, err := os.ReadFile(s.manager.Log)
	if err != nil {
		s.narrator.note("The manager's log cannot be read: %v", err)
		return
	}
	last := strings.Split(strings.TrimSpace(string(content)), "\n")
	s.narrator.note("\nThe last lines of the manager's log:\n\n%s", strings.Join(last[max(0, len(last)-logLines):], "\n"))
}

const (
	width     = 115 // of the whole commentary
	actorWide = 25
	timeWide  = 8
)

// narrator prints the commentary, one line for each event. It wraps long lines.
type narrator struct {
	mu     sync.Mutex
	out    io.Writer
	styled bool
	// zero is the moment that printed times are relative to. If it is unset, the narrator prints the time of day.
	zero time.Time
}

func newNarrator(out *os.File) *narrator {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &narrator{out: out, styled: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// countFrom sets zero.
func (n *narrator) countFrom(zero time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.zero = zero
}

func (n *narrator) since(at time.Time) string {
	if n.zero.IsZero() {
		return ""
	}
	return fmt.Sprintf("%+.1fs", at.Sub(n.zero).Seconds())
}

// at returns a moment as the commentary prints it.
func (n *narrator) at(moment time.Time) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.zero.IsZero() {
		return moment.Format(time.TimeOnly)
	}
	return n.since(moment)
}

func (n *narrator) line(at time.Time, by, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	indent := strings.Repeat(" ", timeWide+2+actorWide)
	for i, part := range wrap(text, width-len(indent)) {
		if i > 0 {
			n.print("%s%s\n", indent, part)
			continue
		}
		n.print("%*s  %s%s\n", timeWide, n.since(at), n.bold(fmt.Sprintf("%-*s", actorWide, by)), part)
	}
}

func (n *narrator) heading(title, story string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.print("\n%s\n%s\n", n.bold(title), strings.Repeat("-", len(title)))
	for _, part := range wrap(story, width) {
		n.print("%s\n", part)
	}
	if story != "" {
		n.print("\n")
	}
}

// note prints a line about the demo itself.
func (n *narrator) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.print("%s\n", fmt.Sprintf(format, args...))
}

func (n *narrator) verdict(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.print("\n%s\n", n.bold(text))
}

func (n *narrator) print(format string, args ...any) {
	// The demo goes on if standard output is closed.
	_, _ = fmt.Fprintf(n.out, format, args...)
}

func (n *narrator) bold(text string) string {
	if !n.styled {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// plain returns a writer for other packages that write whole lines.
func (n *narrator) plain() io.Writer { return lines{n} }

type lines struct{ *narrator }

// Write implements io.Writer.
func (l lines) Write(content []byte) (int, error) {
	l.note("%s", bytes.TrimRight(content, "\n"))
	return len(content), nil
}

func wrap(text string, limit int) []string {
	var out []string
	for _, paragraph := range strings.Split(text, "\n") {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			if line != "" && len([]rune(line))+1+len([]rune(word)) > limit {
				out, line = append(out, line), ""
			}
			if line != "" {
				line += " "
			}
			line += word
		}
		if line != "" {
			out = append(out, line)
		}
	}
	return out
}

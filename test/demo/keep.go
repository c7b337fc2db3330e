package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/simulator"
)

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
		return // it did not get that far
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

// linesOf are the lines that come in, until the context ends or there are no more.
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
			// The kubelet of a host that is off waits for its next boot.
			if kubelet := host.Kubelet(); kubelet != nil && host.Powered() {
				kubelet.Start()
			}
		}
		return nil
	}
	return fmt.Errorf("%q is not a command.\n%s", strings.Join(words, " "), commands)
}

// logLines is how many lines of the manager's log are shown.
const logLines = 25

// showWhy shows the state of the objects, and the last lines of the manager's log.
func (s *environment) showWhy() {
	if s.manager == nil {
		return
	}
	// The demo's own context may have ended.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.narrator.note("\nCurrent state:\n")
	if err := s.showState(ctx); err != nil {
		s.narrator.note("%v", err)
	}
	content, err := os.ReadFile(s.manager.Log)
	if err != nil {
		s.narrator.note("The manager's log cannot be read: %v", err)
		return
	}
	last := strings.Split(strings.TrimSpace(string(content)), "\n")
	s.narrator.note("\nThe last lines of the manager's log:\n\n%s", strings.Join(last[max(0, len(last)-logLines):], "\n"))
}

// showState prints the statuses of all objects that a scene is about.
func (s *environment) showState(ctx context.Context) error {
	for _, list := range []client.ObjectList{
		&clusterv1.MachineHealthCheckList{}, &clusterv1.MachineList{}, &mendv1.HostRemediationList{}, &bmov1alpha1.BareMetalHostList{},
		&corev1.NodeList{},
	} {
		if err := s.here.List(ctx, list); err != nil {
			return fmt.Errorf("read the current state: %w", err)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
		if err != nil {
			return fmt.Errorf("show the current state: %w", err)
		}
		for _, item := range content["items"].([]any) {
			object := unstructured.Unstructured{Object: item.(map[string]any)}
			status, err := yaml.Marshal(object.Object["status"])
			if err != nil {
				return fmt.Errorf("show the status of %s: %w", object.GetName(), err)
			}
			s.narrator.note("%s %s\n%s", reflect.TypeOf(list).Elem().Name(), object.GetName(), status)
		}
	}
	return nil
}

package nodes

import (
	"context"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/test/testclock"
)

// ears are the caches of an environment's controller. Each kind is watched on its own, so what was written first may be heard of last; and where
// much else is going on, that may take a while.
type ears struct {
	environment     *environment
	own, management client.Reader
	kinds           nodehealthcheck.Kinds
}

// hears waits until the environment's controller, if there is one, has heard of all that there is.
func (s *environment) hears(ctx context.Context) {
	GinkgoHelper()
	if s.memory != nil {
		Expect(s.memory.Settle()).To(Succeed())
		return
	}
	if s.ears == nil {
		return
	}
	Eventually(func() string {
		GinkgoHelper()
		return cmp.Diff(s.written(ctx), s.ears.heard(ctx))
	}).Should(BeEmpty(), "the controller is to hear of all that there is")
}

// patient is a clock that leaps when the environment's controller has heard of all that was before: what it has made, and does not see half a
// minute later, it takes for lost.
type patient struct {
	*testclock.Clock
	environment *environment
}

// Step lets the clock leap.
func (c patient) Step(d time.Duration) {
	GinkgoHelper()
	c.environment.hears(context.Background())
	c.Clock.Step(d)
}

// written are the versions of all that the environment's controller reads, as the API server has it.
func (s *environment) written(ctx context.Context) map[string]string {
	GinkgoHelper()
	is, err := s.ears.versions(ctx, s.here, s.here)
	Expect(err).NotTo(HaveOccurred())
	return is
}

// heard is the same as the controller has it; nil if it has not read all kinds yet.
func (e *ears) heard(ctx context.Context) map[string]string {
	is, err := e.versions(ctx, e.own, e.management)
	if err != nil {
		return nil
	}
	return is
}

func (e *ears) versions(ctx context.Context, own, management client.Reader) (map[string]string, error) {
	is := map[string]string{}
	add := func(from client.Reader, list client.ObjectList, of client.ListOption) error {
		kind, err := apiutil.GVKForObject(list, scheme)
		if err != nil {
			return fmt.Errorf("find the kind of a list: %w", err)
		}
		if err := from.List(ctx, list, of); err != nil {
			return fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		return meta.EachListItem(list, func(o runtime.Object) error {
			obj := o.(client.Object)
			is[fmt.Sprintf("%s %s", kind.Kind, client.ObjectKeyFromObject(obj))] = obj.GetResourceVersion()
			return nil
		})
	}
	ours := client.MatchingLabels{environmentLabel: e.environment.name}
	for list, of := range map[client.ObjectList]client.ListOption{
		&corev1.NodeList{}: ours, &nhcv1.NodeHealthCheckList{}: ours, &coordinationv1.LeaseList{}: client.InNamespace(e.environment.leases),
	} {
		if err := add(own, list, of); err != nil {
			return nil, err
		}
	}
	for _, list := range []client.ObjectList{&clusterv1.MachineList{}, &clusterv1.MachineHealthCheckList{}, &clusterv1.ClusterList{}} {
		if err := add(management, list, client.InNamespace(e.environment.name)); err != nil {
			return nil, err
		}
	}
	for _, kind := range e.reads() {
		namespaces := []string{e.environment.name, e.environment.elsewhere}
		if mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); err != nil {
			return nil, fmt.Errorf("find out whether %s has namespaces: %w", kind.Kind, err)
		} else if mapping.Scope.Name() == meta.RESTScopeNameRoot {
			namespaces = []string{metav1.NamespaceAll}
		}
		for _, namespace := range namespaces {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			if err := add(own, list, client.InNamespace(namespace)); err != nil {
				return nil, err
			}
		}
	}
	return is, nil
}

// reads are the kinds that the controller has found out about and watches: those of requests with those of their templates, and those of OpenShift.
func (e *ears) reads() []schema.GroupVersionKind {
	var all []schema.GroupVersionKind
	for _, kind := range e.kinds.InUse() {
		if e.kinds.Polled(kind) { // it is in no cache, and neither are its templates with the same role
			continue
		}
		all = append(all, kind)
		if kind.Group != clusterVersion.Group && kind.Group != theirCheck.Group {
			all = append(all, kind.GroupVersion().WithKind(kind.Kind+remediationrequest.TemplateSuffix))
		}
	}
	return all
}

package nodes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/test/inmemory"
)

// clock is that of an environment, which goes as far as a test wants it to.
type clock struct{ program *inmemory.Program }

// Now is the time.
func (c clock) Now() time.Time { return c.program.Server.Clock.Now() }

// Step lets the clock leap.
func (c clock) Step(d time.Duration) {
	GinkgoHelper()
	Expect(c.program.Step(d)).To(Succeed())
}

// settled is a client that reads when the controller has done all that it has to do.
type settled struct {
	client.WithWatch
	program *inmemory.Program
}

// Get reads an object.
func (c settled) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := c.program.Settle(); err != nil {
		return err
	}
	return c.WithWatch.Get(ctx, key, obj, opts...)
}

// List reads objects.
func (c settled) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.program.Settle(); err != nil {
		return err
	}
	return c.WithWatch.List(ctx, list, opts...)
}

// notes are the events that the controller has sent.
type notes struct {
	mu  sync.Mutex
	all []note
}

type note struct{ kind, name, reason, text string }

// Eventf notes an event.
func (n *notes) Eventf(regarding, _ runtime.Object, kind, reason, _, text string, args ...any) {
	obj, err := meta.Accessor(regarding)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, note{regarding.GetObjectKind().GroupVersionKind().Kind, obj.GetName(), reason, kind + " " + fmt.Sprintf(text, args...)})
}

// number is how many there are.
func (n *notes) number() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all)
}

// of are the events of a reason about a check.
func (n *notes) of(s *environment, check, reason string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := []string{}
	for _, e := range n.all {
		if e.name == s.called(check) && e.reason == reason {
			found = append(found, strings.ReplaceAll(e.text, s.name+"-", ""))
		}
	}
	return found
}

// installs makes the API server serve kinds from now on.
func (s *environment) installs(ctx context.Context, kinds ...schema.GroupVersionKind) {
	GinkgoHelper()
	for _, kind := range kinds {
		singular := strings.ToLower(kind.Kind)
		Expect(s.here.Create(ctx, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + kind.Group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: kind.Group, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, Plural: singular + "s", Singular: singular},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: kind.Version, Served: true, Storage: true}},
			},
		})).To(Succeed())
		s.program.Server.Install(kind)
	}
}

// settle makes the controller reconcile a check once more when it has seen every change.
func (s *environment) settle(check string) {
	GinkgoHelper()
	Expect(s.program.Settle()).To(Succeed())
	s.reconcile(check)
	Expect(s.program.Settle()).To(Succeed())
}

// reconcile makes the controller reconcile a check once.
func (s *environment) reconcile(check string) {
	GinkgoHelper()
	Expect(s.program.Reconcile(reconcile.Request{NamespacedName: client.ObjectKey{Name: s.called(check)}})).To(Succeed())
}

package crdgate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubemend/kubemend/controllers/managerlease"
)

const kind, needed = "things.example.org", "parts.example.org"

// environment is a management cluster with one service, which records its calls.
type environment struct {
	t       *testing.T
	client  client.Client
	service *Service
	r       *Reconciler
	called  []string
	broken  error

	allowed map[string]bool // what the manager may do, as verb and resource
	asked   int             // how often it asked what it may do
	refused error           // what the API server answers to that
}

func environmentWith(t *testing.T, choice Choice) *environment {
	t.Helper()
	scheme := runtime.NewScheme()
	crds := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	scheme.AddKnownTypeWithName(crds, &metav1.PartialObjectMetadata{})
	scheme.AddKnownTypeWithName(crds.GroupVersion().WithKind("CustomResourceDefinitionList"), &metav1.PartialObjectMetadataList{})
	s := &environment{t: t, allowed: map[string]bool{}}
	s.client = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			review, is := o.(*authorizationv1.SelfSubjectAccessReview)
			if !is {
				return c.Create(ctx, o, opts...)
			}
			s.asked++
			asked := review.Spec.ResourceAttributes
			review.Status.Allowed = s.allowed[asked.Verb+" "+asked.Resource]
			return s.refused
		},
	}).Build()
	s.service = &Service{
		CRD: kind, Needs: []string{needed}, Choice: choice, Foreign: func(labels map[string]string) string { return labels[clusterv1.ProviderNameLabel] },
		Start: func(context.Context) error {
			s.called = append(s.called, "start")
			return s.broken
		},
		Serve: func(does bool) { s.called = append(s.called, map[bool]string{true: "serve", false: "idle"}[does]) },
	}
	s.r = &Reconciler{Client: s.client, Services: []*Service{s.service}}
	return s
}

// has creates or updates a CRD with these labels.
func (s *environment) has(name string, labels map[string]string) {
	s.t.Helper()
	crd := crdMetadata()
	crd.Name = name
	err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(crd), crd)
	crd.Labels = labels
	if err != nil {
		err = s.client.Create(s.t.Context(), crd)
	} else {
		err = s.client.Update(s.t.Context(), crd)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// reconcile reconciles once, and returns which functions of the service were called and why the kind is not served, or "served".
func (s *environment) reconcile() (called []string, why string) {
	s.t.Helper()
	s.called = nil
	_, err := s.r.Reconcile(s.t.Context(), ctrl.Request{})
	if !errors.Is(err, s.broken) {
		s.t.Fatalf("the reconcile: %v, want %v", err, s.broken)
	}
	for reason, n := range series(s.t) {
		if why != "" {
			s.t.Errorf("the metric has more than one reason: %q and %q", why, reason)
		}
		if why = reason; n == 1 {
			why = "served" + reason
		}
	}
	return s.called, why
}

// series returns the values of the metric for kind, by reason.
func series(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(Metrics()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["kind"] == kind {
			all[labels["reason"]] = m.GetGauge().GetValue()
		}
	}
	return all
}

var theirs = map[string]string{clusterv1.ProviderNameLabel: "infrastructure-x"}

func TestAKindIsServedWhenItIsThereAndFree(t *testing.T) {
	s := environmentWith(t, Auto)
	var heard [][]managerlease.Kind
	s.r.Changed = func() { heard = append(heard, s.r.Kinds()) }
	if kinds := s.r.Kinds(); len(kinds) > 0 {
		t.Errorf("before the first reconcile there are %v", kinds)
	}
	for _, step := range []struct {
		name   string
		do     func()
		called []string
		why    string
	}{
		{"before its CRD is installed it is not", func() {}, nil, "NotInstalled"},
		{"nor later, which is no news", func() {}, nil, "NotInstalled"},
		{"nor before what it needs is", func() { s.has(kind, nil) }, nil, "Waiting"},
		{"then it is started", func() { s.has(needed, nil) }, []string{"start"}, "served"},
		{"once", func() {}, []string{"serve"}, "served"},
		{"when it becomes somebody else's it stands idle", func() { s.has(kind, theirs) }, []string{"idle"}, "Foreign"},
		{"and works again when it is ours again", func() { s.has(kind, nil) }, []string{"serve"}, "served"},
	} {
		step.do()
		if called, why := s.reconcile(); !slices.Equal(called, step.called) || why != step.why {
			t.Errorf("%s: called %v, %q; want %v, %q", step.name, called, why, step.called, step.why)
		}
	}
	want := [][]managerlease.Kind{
		{{CRD: kind, Reason: "NotInstalled", Because: "its CustomResourceDefinition is not installed"}},
		{{CRD: kind, Reason: "Waiting", Because: "these are not installed: " + needed}},
		{{CRD: kind}},
		{{CRD: kind, Reason: "Foreign", Because: "its CustomResourceDefinition belongs to infrastructure-x, whose controller serves it"}},
		{{CRD: kind}},
	}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Errorf("heard of changes (-want +got):\n%s", diff)
	}
}

// The CRDs of CAPM3 may have no label, or kubemend's CRDs may have replaced them.
func TestAKindIsForeignWhileItsOtherControllerRuns(t *testing.T) {
	for name, row := range map[string]struct {
		choice Choice
		lease  client.ObjectKey
		holder string
		age    time.Duration
		why    string
	}{
		"it leads":                         {Auto, theirLease, "a", 10 * time.Second, "Foreign"},
		"it is being restarted":            {Auto, theirLease, "a", 4 * time.Minute, "Foreign"},
		"it is gone":                       {Auto, theirLease, "a", 5 * time.Minute, "served"},
		"it has released its lease":        {Auto, theirLease, "", time.Second, "served"},
		"the user chooses on":              {On, theirLease, "a", time.Second, "served"},
		"it leads in another place of its": {Auto, client.ObjectKey{Namespace: "capm3-elsewhere", Name: theirLease.Name}, "a", 10 * time.Second, "Foreign"},
		"a tenant has such a lease":        {Auto, client.ObjectKey{Namespace: "tenant", Name: theirLease.Name}, "a", time.Second, "served"},
		"the lease has another name":       {Auto, client.ObjectKey{Namespace: theirLease.Namespace, Name: "other"}, "a", time.Second, "served"},
	} {
		t.Run(name, func(t *testing.T) {
			s := environmentWith(t, row.choice)
			s.has(kind, nil)
			s.has(needed, nil)
			now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
			s.service.Other, s.r.Clock = &OtherController{Name: "their controller", Lease: theirLease.Name, Namespaces: []string{theirLease.Namespace, "capm3-elsewhere"}}, clocktesting.NewFakePassiveClock(now)
			s.r.Live = led(row.lease, row.holder, now.Add(-row.age))
			if _, why := s.reconcile(); why != row.why {
				t.Errorf("%q, want %q", why, row.why)
			}
			result, err := s.r.Reconcile(t.Context(), ctrl.Request{})
			if again := result.RequeueAfter > 0; err != nil || again != (row.choice == Auto) {
				t.Errorf("it reconciles again after %s (%v)", result.RequeueAfter, err)
			}
		})
	}
}

// led returns a cluster with a leader lease.
func led(by client.ObjectKey, holder string, renewed time.Time) client.Client {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: by.Namespace, Name: by.Name}}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, &metav1.MicroTime{Time: renewed}
	return fake.NewClientBuilder().WithObjects(lease).
		WithIndex(lease, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
}

var theirLease = client.ObjectKey{Namespace: "other-system", Name: "other-leader"}

// Otherwise a host that is kept off when a user switches the kind off would stay off for ever.
func TestAServiceThatIsSwitchedOffReleasesWhatItHolds(t *testing.T) {
	for name, row := range map[string]struct {
		before Choice
		labels map[string]string
		called []string
	}{
		"what was served before releases":                    {Auto, nil, []string{"start"}},
		"another controller ends what is its own":            {Auto, theirs, nil},
		"what was served beside another controller releases": {On, theirs, []string{"start"}},
		"what was never served does not start":               {"", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := environmentWith(t, Off)
			s.service.Releases = row.before
			s.has(kind, row.labels)
			s.has(needed, nil)
			if called, why := s.reconcile(); !slices.Equal(called, row.called) || why != "Off" {
				t.Errorf("called %v, %q; want %v, and that it is off", called, why, row.called)
			}
			s.service.Serve = nil
			if _, why := s.reconcile(); why != "Off" {
				t.Errorf("then %q", why)
			}
		})
	}
}

func TestWhatCouldNotBeStartedIsTriedAgain(t *testing.T) {
	s := environmentWith(t, Auto)
	s.has(kind, nil)
	s.has(needed, nil)
	s.broken = errors.New("broken")
	if called, why := s.reconcile(); !slices.Equal(called, []string{"start"}) || why != "Failed" {
		t.Errorf("called %v, %q; want it to fail", called, why)
	}
	s.broken = nil
	if called, why := s.reconcile(); !slices.Equal(called, []string{"start"}) || why != "served" {
		t.Errorf("called %v, %q; want it to be started", called, why)
	}
}

func TestAKindThatAGateSwitchedOffSaysSo(t *testing.T) {
	s := environmentWith(t, Off)
	s.service.Gate = "Gate"
	if called, why := s.reconcile(); len(called) > 0 || why != OffReason {
		t.Errorf("called %v, %q", called, why)
	}
	want := []managerlease.Kind{{CRD: kind, Reason: OffReason, Because: "the feature gate Gate is off"}}
	if diff := cmp.Diff(want, s.r.Kinds()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Without its rights, a controller would wait for ever for its caches, without an error.
func TestAKindIsServedWhenTheManagerHasTheRights(t *testing.T) {
	s := environmentWith(t, Auto)
	s.has(kind, nil)
	s.has(needed, nil)
	s.service.Role, s.service.Rights = "things", []authorizationv1.ResourceAttributes{{Verb: "watch", Group: "example.org", Resource: "things"}, {Verb: "update", Resource: "boxes", Namespace: "attic"}}
	s.allowed["watch things"] = true
	if called, why := s.reconcile(); len(called) > 0 || why != ForbiddenReason {
		t.Errorf("without one of its rights: called %v, %q", called, why)
	}
	_, sentence, err := s.r.Why(t.Context(), s.service)
	if want := "the manager may not update boxes in namespace attic; the role things says what it needs"; err != nil || sentence != want {
		t.Errorf("it says %q (%v), want %q", sentence, err, want)
	}
	if result, err := s.r.Reconcile(t.Context(), ctrl.Request{}); err != nil || result.RequeueAfter == 0 {
		t.Errorf("no event says that a right was granted, and it reconciles again after %s, %v", result.RequeueAfter, err)
	}

	s.refused = context.DeadlineExceeded
	const ask = "ask whether the manager may watch example.org/things"
	if _, _, err := s.r.Why(t.Context(), s.service); err == nil || !strings.HasPrefix(err.Error(), ask) {
		t.Errorf("an API server that does not answer has allowed nothing: %v", err)
	}
	s.refused = apierrors.NewForbidden(schema.GroupResource{Resource: "selfsubjectaccessreviews"}, "", nil)
	if reason, _, err := s.r.Why(t.Context(), s.service); err != nil || reason != "" {
		t.Errorf("without the right to ask it is %q, %v; want it to start", reason, err)
	}
	s.refused, s.allowed["update boxes"] = nil, true
	if called, why := s.reconcile(); !slices.Equal(called, []string{"start"}) || why != "served" {
		t.Errorf("with all its rights: called %v, %q", called, why)
	}
	s.asked = 0
	if result, err := s.r.Reconcile(t.Context(), ctrl.Request{}); err != nil || result.RequeueAfter != 0 || s.asked > 0 {
		t.Errorf("once it is started it asks %d times, and reconciles again after %s, %v", s.asked, result.RequeueAfter, err)
	}
}

package nodes

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/policy"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// tale is a remediation from the failure of a node to its end.
type tale struct {
	// setUp creates everything except the nodes w1 to w3.
	setUp func(*environment)
	// happens is the story, after which everything has ended; nil means escalates.
	happens func(*environment)
	// made are the expected requests, in the order of their creation.
	made []string
	// either allows that another request is created in place of one.
	either bool
}

// rung is a step of a ladder.
type rung struct {
	by      remediator
	name    string
	several bool
}

var (
	soft    = rung{by: reboot, name: "soft"}
	hard    = rung{by: replace, name: "hard"}
	softs   = rung{by: reboot, name: "softs", several: true}
	harder  = rung{by: reboot, name: "harder", several: true}
	hards   = rung{by: replace, name: "hards", several: true}
	nowhere = rung{by: global, name: "nowhere"}
	cycled  = rung{by: cycle, name: "cycled"}
)

func (r rung) String() string { return short(r.by.kind.Kind) + "/" + r.name }

// make makes the template of the rung.
func (r rung) make(e *environment) corev1.ObjectReference {
	if r.several {
		return e.template(r.by, r.name, severally)
	}
	return e.template(r.by, r.name)
}

// ref returns a reference to the template of the rung.
func (r rung) ref(e *environment) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: r.by.kind.GroupVersion().String(), Kind: r.by.templates().Kind, Namespace: e.namespace, Name: r.name,
	}
}

// classic sets up a check with one template, ladder a check with several.
func classic(r rung, edits ...func(*nhcv1.NodeHealthCheck)) func(*environment) {
	return func(e *environment) { e.check("check", append(edits, e.by(r.make(e)))...) }
}

func ladder(rungs ...rung) func(*environment) {
	return func(e *environment) {
		var templates []corev1.ObjectReference
		for _, r := range rungs {
			templates = append(templates, r.make(e))
			e.safety.ladder = append(e.safety.ladder, r.String())
		}
		e.check("check", escalating(templates...))
	}
}

// escalates lets w1 fail and recover. All remediators but that of the last step do nothing.
func escalates(steps int) func(*environment) {
	return func(e *environment) {
		e.fails("w1")
		var last *unstructured.Unstructured
		for i := range steps {
			e.awaits("the next step", func() bool { return len(e.requests()) == i+1 })
			last = e.requests()[i]
			e.holds(last, true)
			e.says(last, nhcv1.ProcessingCondition, metav1.ConditionTrue)
			if i+1 < steps {
				e.inTime(last, i)
			}
		}
		e.says(last, nhcv1.SucceededCondition, metav1.ConditionTrue)
		e.recovers("w1")
		e.ends()
	}
}

// inTime lets the timeout of a step pass, and checks that the step does not end before.
func (e *environment) inTime(req *unstructured.Unstructured, i int) {
	e.Helper()
	left := req.GetCreationTimestamp().Add(step).Sub(e.now())
	e.elapse(left - 2*time.Second)
	if n := len(e.requests()); n != i+1 || e.again(req).GetAnnotations()[nhcv1.TimedOutAnnotation] != "" {
		e.Fatalf("step %d ended before its time was over\n%s", i+1, e.state())
	}
	e.elapse(2 * time.Second)
	e.awaits("that the step is given up", func() bool { return e.again(req).GetAnnotations()[nhcv1.TimedOutAnnotation] != "" })
}

// ends makes remediators remove their finalizers from deleted requests until no request is left.
func (e *environment) ends() {
	e.Helper()
	e.awaits("that all requests are deleted", func() bool {
		for _, r := range e.requests() {
			if r.GetDeletionTimestamp() == nil {
				return false
			}
		}
		return true
	})
	for _, r := range e.requests() {
		if e.holder(about(r)) == "" && e.getNode(about(r)) != nil {
			e.Fatalf("the lease of %s is released while its remediator works\n%s", about(r), e.state())
		}
		e.holds(r, false)
	}
	e.awaits("that nothing is left", func() bool { return len(e.requests()) == 0 && len(e.leases()) == 0 && e.atRest() })
}

// atRest reports whether no check lists a node as unhealthy.
func (e *environment) atRest() bool {
	for _, c := range e.checks() {
		if st := &c.Status; st.Phase != nhcv1.PhaseEnabled || len(st.UnhealthyNodes) > 0 {
			return false
		}
	}
	return true
}

func (e *environment) members(names ...string) {
	for _, name := range names {
		e.node(name, labelled("node-role.kubernetes.io/control-plane", ""))
	}
}

// tales are the remediations of which every write is tried.
var tales = map[string]tale{
	"one template": {setUp: classic(soft), made: []string{"Reboot/soft"}},
	"one template, several requests for one node": {setUp: classic(softs), made: []string{"Reboot/softs"}},
	"one template of a kind without namespaces":   {setUp: classic(nowhere), made: []string{"Global/nowhere"}},
	"one step": {setUp: ladder(soft), made: []string{"Reboot/soft"}},
	"one step, several requests for one node":           {setUp: ladder(softs), made: []string{"Reboot/softs"}},
	"two steps of different kinds":                      {setUp: ladder(soft, hard), made: []string{"Reboot/soft", "Replace/hard"}},
	"two steps of different kinds, several requests":    {setUp: ladder(softs, hards), made: []string{"Reboot/softs", "Replace/hards"}},
	"two steps of the same kind":                        {setUp: ladder(softs, harder), made: []string{"Reboot/softs", "Reboot/harder"}},
	"two steps, the first of a kind without namespaces": {setUp: ladder(nowhere, hard), made: []string{"Global/nowhere", "Replace/hard"}},
	"three steps of different kinds":                    {setUp: ladder(soft, hard, nowhere), made: []string{"Reboot/soft", "Replace/hard", "Global/nowhere"}},
	"three steps, the first and the last of one kind":   {setUp: ladder(softs, hard, harder), made: []string{"Reboot/softs", "Replace/hard", "Reboot/harder"}},
	"two steps of one kind that takes a single request": {setUp: ladder(soft, rung{by: reboot, name: "again"}), happens: stays, made: []string{"Reboot/soft"}},
	"a request that is named after the Machine":         {setUp: ofMachine(classic(cycled)), made: []string{"Cycle/cycled"}},
	"two steps, the first named after the Machine":      {setUp: ofMachine(ladder(cycled, soft)), made: []string{"Cycle/cycled", "Reboot/soft"}},
	"a remediator that fails":                           {setUp: ladder(soft, hard), happens: failing, made: []string{"Reboot/soft", "Replace/hard"}},
	"a remediator that deletes its request":             {setUp: ladder(soft, hard), happens: deleting, made: []string{"Reboot/soft", "Reboot/soft"}},
	"C65: a node of the control plane":                  {setUp: ofMembers, happens: inTurn("c1", "c2"), made: []string{"Reboot/soft", "Reboot/soft"}},
	"a node that is deleted during its remediation":     {setUp: ladder(soft, hard), happens: losing, made: []string{"Reboot/soft"}},
	"a node that its remediator deletes":                {setUp: classic(soft), happens: replacing, made: []string{"Reboot/soft"}},
	"a check that is deleted during a remediation":      {setUp: ladder(soft, hard), happens: unchecking, made: []string{"Reboot/soft", "Replace/hard"}},
	"a check that another one of its name replaces":     {setUp: classic(soft), happens: rechecking, made: []string{"Reboot/soft", "Reboot/soft"}},
	"a storm and its cooldown":                          {setUp: classic(soft, storm), happens: storming, made: []string{"Reboot/soft"}},
	"a lease that another holder has first":             {setUp: taken, made: []string{"Reboot/soft"}},
	"a healthy delay that begins twice":                 {setUp: classic(soft, delay(3*time.Minute)), happens: flapping, made: []string{"Reboot/soft"}},
	"a node that a person confirms to be healthy":       {setUp: classic(soft, delay(-time.Second)), happens: confirming, made: []string{"Reboot/soft"}},
	"a request that lasts for more than two days":       {setUp: classic(soft), happens: lasting, made: []string{"Reboot/soft"}},
	"a template that another one replaces":              {setUp: classic(soft), happens: exchanging, made: []string{"Reboot/soft", "Replace/hard"}},
	"two checks of the same nodes":                      {setUp: twoChecks, made: []string{"Reboot/soft"}, either: true},
	"two checks to which a policy gives one place": {
		setUp: onePlace, happens: inTurn("w1", "x1"), made: []string{"Reboot/soft", "Replace/hard", "Reboot/soft"},
	},
}

func ofMachine(setUp func(*environment)) func(*environment) {
	return func(e *environment) {
		e.machine(e.cluster(), "w1")
		setUp(e)
	}
}

func delay(d time.Duration) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.HealthyDelay = &metav1.Duration{Duration: d} }
}

func storm(c *nhcv1.NodeHealthCheck) {
	c.Spec.MinHealthy, c.Spec.StormCooldownDuration = ptr.To(intstr.FromInt32(2)), &metav1.Duration{Duration: 3 * time.Minute}
}

func taken(e *environment) {
	now := metav1.NewMicroTime(e.now())
	e.makes(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.leasesIn, Name: nhcv1.LeasePrefix + "w1"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("maintenance"), LeaseDurationSeconds: ptr.To[int32](180), AcquireTime: &now, RenewTime: &now,
		},
	})
	classic(soft)(e)
}

func twoChecks(e *environment) {
	e.check("a", e.by(soft.make(e)))
	e.check("b", e.by(hard.make(e)))
}

func onePlace(e *environment) {
	racks := &mendv1.RemediationPolicy{}
	racks.Spec.Limits = []mendv1.PolicyLimit{{Name: "all", MaxInFlight: ptr.To(intstr.FromInt32(1))}}
	e.policies = []*policy.Policy{policy.Read(racks, "")}
	e.node("x1", labelled("pool", "x"))
	steps := escalating(soft.make(e), hard.make(e))
	e.check("a", steps)
	e.check("b", steps, func(c *nhcv1.NodeHealthCheck) {
		c.Spec.Selector.MatchLabels["pool"], c.Spec.MinHealthy = "x", ptr.To(intstr.FromInt32(0))
	})
}

func ofMembers(e *environment) {
	e.members("c1", "c2", "c3", "c4", "c5")
	classic(soft, func(c *nhcv1.NodeHealthCheck) {
		c.Spec.Selector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "node-role.kubernetes.io/control-plane", Operator: metav1.LabelSelectorOpExists},
		}}
	})(e)
}

// safety checks the rules that must hold after each reconcile.
type safety struct {
	*environment
	seen    map[string]bool   // UIDs of requests
	stopped map[string]string // when the remediator of a request was asked to stop, by UID
	// steps is, for each node, the number of the next step of ladder.
	steps  map[string]int
	ladder []string
	// exchanged means that the template was replaced during a remediation: the request of the old one continues, and one of the new one is
	// created.
	exchanged bool
}

// check returns an error if a safety rule does not hold.
func (s *safety) check() error {
	live := map[string][]string{}
	alone := map[string]bool{} // nodes of which only one may be remediated at a time
	for _, req := range s.requests() {
		node := about(req)
		if err := s.recorded(req); err != nil {
			return err
		}
		if !s.seen[string(req.GetUID())] {
			s.seen[string(req.GetUID())] = true
			if err := s.begun(req); err != nil {
				return err
			}
		}
		at := req.GetAnnotations()[nhcv1.TimedOutAnnotation]
		if was := s.stopped[string(req.GetUID())]; was != "" && at != was {
			return fmt.Errorf("%s was timed out at %s, and again at %q\n%s", named(req), was, at, s.state())
		}
		s.stopped[string(req.GetUID())] = at
		if _, member := req.GetLabels()[nhcv1.ControlPlaneLabel]; member || s.policies != nil {
			alone[node] = true
		}
		if over(req) {
			continue
		}
		live[node] = append(live[node], named(req))
		if s.holder(node) == "" {
			return fmt.Errorf("%s for %s is under way and the lease has no holder\n%s", named(req), node, s.state())
		}
	}
	for node, requests := range live {
		if len(requests) > 1 && !(s.exchanged && len(requests) == 2) {
			return fmt.Errorf("%s is remediated by several at once: %v\n%s", node, requests, s.state())
		}
	}
	if len(alone) > 1 {
		return fmt.Errorf("two nodes are remediated, of the control plane, or for which a policy has one place\n%s", s.state())
	}
	return nil
}

// recorded checks that a request names a record of its node. Nothing closes earlier records here. A request without a namespace has no
// record.
func (s *safety) recorded(req *unstructured.Unstructured) error {
	list := &mendv1.RemediationRecordList{}
	if err := s.server.List(s.Context(), list); err != nil {
		return err
	}
	var of []string
	for i := range list.Items {
		if list.Items[i].Spec.Target.Node.Name == about(req) {
			of = append(of, records.Carried(&list.Items[i], req.GetNamespace()))
		}
	}
	if named := req.GetAnnotations()[mendv1.RecordAnnotation]; req.GetNamespace() != "" && !slices.Contains(of, named) {
		return fmt.Errorf("%s names the record %q, and those of its node are %q\n%s", req.GetName(), named, of, s.state())
	}
	return nil
}

// over reports whether a request was timed out, has succeeded or failed, or is being deleted.
func over(req *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(req.Object, "status", "conditions")
	return req.GetDeletionTimestamp() != nil || req.GetAnnotations()[nhcv1.TimedOutAnnotation] != "" ||
		slices.ContainsFunc(conditions, func(c any) bool {
			fields := c.(map[string]any)
			return fields["type"] == nhcv1.SucceededCondition && fields["status"] == string(metav1.ConditionTrue)
		})
}

// begun checks a request when it is seen for the first time.
func (s *safety) begun(req *unstructured.Unstructured) error {
	node := s.getNode(about(req))
	if s.late { // the controller could not know that
		s.began(req)
		return nil
	}
	switch {
	case node == nil:
		return fmt.Errorf("%s was made for node %s, which is gone\n%s", named(req), about(req), s.state())
	case node.Status.Conditions[0].Status == corev1.ConditionTrue:
		return fmt.Errorf("%s was made for node %s, which is healthy\n%s", named(req), about(req), s.state())
	}
	if check := s.getCheck(req.GetOwnerReferences()[0].Name); check == nil || len(check.Spec.PauseRequests) > 0 {
		return fmt.Errorf("%s was made although its check is gone or paused\n%s", named(req), s.state())
	}
	if step := slices.Index(s.ladder, named(req)); s.ladder != nil && step > s.steps[about(req)] {
		return fmt.Errorf("%s was made as step %d, and the step before it was not\n%s", named(req), step+1, s.state())
	}
	s.began(req)
	return nil
}

func (s *safety) began(req *unstructured.Unstructured) {
	s.steps[about(req)] = max(s.steps[about(req)], slices.Index(s.ladder, named(req))+1)
}

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

const (
	duplicate      = "Using multiple templates of same kind is not supported for this template: duplicate template kind: RebootTemplate"
	badOperator    = `Invalid selector: "Resembles" is not a valid label selector operator`
	ofNode1        = ": node-1 (Reboot default/node-1)"
	unknownRequest = "cannot find out whether a remediation is running: list Reboot: reboots.test.io is forbidden: no right to; " +
		"try again when kubemend can list Reboot (test.io/v1)"
)

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "test.io", Resource: resource}, "", errors.New("no right to"))
}

func TestCreation(t *testing.T) {
	twoOfAKind := check(steps(step(1, "RebootTemplate", "a"), step(2, "RebootTemplate", "b")))
	for name, row := range map[string]struct {
		observed observed
		check    *nhcv1.NodeHealthCheck
		want     string
	}{
		"C10: a template":              {with(), check(), ""},
		"C10: steps":                   {with(), check(steps(step(1, "RebootTemplate", "a"), step(2, "ReplaceTemplate", "b"))), ""},
		"C16: an empty selector":       {with(), check(func(c *nhcv1.NodeHealthCheck) { c.Spec.Selector = metav1.LabelSelector{} }), ""},
		"C16: an invalid selector":     {with(), check(badSelector), badOperator},
		"C18: two templates of a kind": {with(template("a"), template("b")), twoOfAKind, duplicate},
		"C18: two templates of a kind that allows it": {
			with(template("a", nhcv1.MultipleTemplatesAnnotation), template("b", nhcv1.MultipleTemplatesAnnotation)), twoOfAKind, "",
		},
		"C18: two templates of a kind of which another template does not allow it": {
			with(template("a", nhcv1.MultipleTemplatesAnnotation), object("RebootTemplate", "elsewhere", "c", "")), twoOfAKind, duplicate,
		},
		"C18: one template in two steps": {
			with(template("a")), check(steps(step(1, "RebootTemplate", "a"), step(2, "RebootTemplate", "a"))), duplicate,
		},
		"C18: a kind three times is reported once": {
			with(template("a")), check(steps(step(1, "RebootTemplate", "a"), step(2, "RebootTemplate", "b"), step(3, "RebootTemplate", "c"))), duplicate,
		},
		"two templates of a kind without any":           {with(), twoOfAKind, duplicate},
		"two templates of a kind that is not installed": {failing("RebootTemplate", uninstalled("RebootTemplate")), twoOfAKind, duplicate},
		"two templates of a kind in different versions": {with(template("a")), check(steps(step(1, "RebootTemplate", "a"), inVersion("test.io/v2"))), duplicate},
		"C18: three templates of two kinds, in the order of the list": {
			with(), check(steps(step(4, "ReplaceTemplate", "a"), step(1, "RebootTemplate", "a"), inVersion("other.io/v1"),
				step(3, "ReplaceTemplate", "b"), inVersion("test.io/v2"), step(9, "ReplaceTemplate", "c"))),
			"[" + strings.ReplaceAll(duplicate, "Reboot", "Replace") + ", " + duplicate + "]",
		},
		"two templates of kinds with nothing but a name": {with(template("a")), check(steps(step(1, "RebootTemplate", "a"), inVersion("other.io/v1"))), ""},
		"two templates of a kind that may not be read": {
			failing("RebootTemplate", forbidden("reboottemplates")), twoOfAKind,
			"cannot find out whether several templates of kind RebootTemplate may be used: list RebootTemplate: " +
				"reboottemplates.test.io is forbidden: no right to; " +
				"try again when kubemend can list RebootTemplate (test.io/v1), or use one template of each kind",
		},
		"C19: an unsupported topology":                  {with(topologyOf("DualReplica")), check(), "Unsupported control plane topology"},
		"C19: no topology":                              {with(topologyOf("")), check(), "Unsupported control plane topology"},
		"C19: the topology of three nodes":              {with(topologyOf("HighlyAvailable")), check(), ""},
		"C19: the topology of one node":                 {with(topologyOf("SingleReplica")), check(), ""},
		"C19: the topology of two nodes and an arbiter": {with(topologyOf("HighlyAvailableArbiter")), check(), ""},
		"C19: the topology of a hosted control plane":   {with(topologyOf("External")), check(), ""},
		"no OpenShift":                                  {failing("Infrastructure", uninstalled("Infrastructure")), check(), ""},
		"a topology that may not be read": {
			failing("Infrastructure", forbidden("infrastructures")), check(),
			"cannot find out the topology of the control plane: infrastructures.test.io is forbidden: no right to; " +
				"try again when kubemend can get Infrastructure cluster (config.openshift.io/v1)",
		},
		"everything at once": {
			with(template("a"), topologyOf("DualReplica")), check(badSelector, steps(step(1, "RebootTemplate", "a"), step(2, "RebootTemplate", "b"))),
			"[" + badOperator + ", " + duplicate + ", Unsupported control plane topology]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := row.observed.validation(t).ValidateCreate(t.Context(), row.check)
			expect(t, err, row.want)
		})
	}
}

// inVersion returns a step with a template of another version or group.
func inVersion(apiVersion string) nhcv1.EscalatingRemediation {
	s := step(2, "RebootTemplate", "b")
	s.RemediationTemplate.APIVersion = apiVersion
	return s
}

func TestUpdate(t *testing.T) {
	running := with(object("Reboot", "default", "node-1", "1"))
	for name, row := range map[string]struct {
		observed observed
		was, is  *nhcv1.NodeHealthCheck
		want     string
	}{
		"C20: another selector during a remediation": {running, check(remediating("1")), check(remediating("1"), selecting("storage")), selectorProhibited + ofNode1},
		"C20: another template during a remediation": {
			running, check(remediating("1")), check(remediating("1"), func(c *nhcv1.NodeHealthCheck) { c.Spec.RemediationTemplate = ref("RebootTemplate", "b") }), templateProhibited + ofNode1,
		},
		"C20: another step during a remediation": {
			running, check(remediating("1"), steps(step(1, "RebootTemplate", "a"))),
			check(remediating("1"), steps(step(1, "RebootTemplate", "a"), step(2, "ReplaceTemplate", "a"))), stepsProhibited + ofNode1,
		},
		"C20: a step less during a remediation": {
			running, check(remediating("1"), steps(step(1, "RebootTemplate", "a"), step(2, "ReplaceTemplate", "a"))),
			check(remediating("1"), steps(step(1, "RebootTemplate", "a"))), stepsProhibited + ofNode1,
		},
		"C20: steps instead of a template during a remediation": {
			running, check(remediating("1")), check(remediating("1"), steps(step(1, "RebootTemplate", "a"))),
			"[" + templateProhibited + ofNode1 + ", " + stepsProhibited + ofNode1 + "]",
		},
		"C20: everything at once during a remediation": {
			running, check(remediating("1")), check(remediating("1"), badSelector, steps(step(1, "RebootTemplate", "a"))),
			"[" + badOperator + ", " + selectorProhibited + ofNode1 + ", " + templateProhibited + ofNode1 + ", " + stepsProhibited + ofNode1 + "]",
		},
		"C20: the thresholds, pause, delays and conditions during a remediation": {running, check(remediating("1")), check(remediating("1"), otherwise), ""},
		"steps in another order of the list during a remediation": {
			running, check(remediating("1"), steps(step(1, "RebootTemplate", "a"), step(2, "ReplaceTemplate", "a"))),
			check(remediating("1"), steps(step(2, "ReplaceTemplate", "a"), step(1, "RebootTemplate", "a"))), "",
		},
		"no list instead of an empty one during a remediation": {running, check(remediating("1")), check(remediating("1"), func(c *nhcv1.NodeHealthCheck) {
			c.Spec.EscalatingRemediations, c.Spec.Selector.MatchExpressions = []nhcv1.EscalatingRemediation{}, []metav1.LabelSelectorRequirement{}
		}), ""},
		"C21: another selector while a node is listed without requests": {running, check(unhealthy), check(unhealthy, selecting("storage")), ""},
		"W8: another selector when the request has gone":                {with(), check(remediating("1")), check(remediating("1"), selecting("storage")), ""},
		"W8: another selector when another request has its name":        {with(object("Reboot", "default", "node-1", "2")), check(remediating("1")), check(remediating("1"), selecting("storage")), ""},
		"W8: another selector when the kind of the request has gone":    {failing("Reboot", uninstalled("Reboot")), check(remediating("1")), check(remediating("1"), selecting("storage")), ""},
		"another selector when one of two requests has gone":            {running, check(), check(remediating("0"), remediating("1"), selecting("storage")), selectorProhibited + ofNode1},
		"another selector while the request is being deleted": {
			with(dying(object("Reboot", "default", "node-1", "1")), node1()), check(), check(remediating("1"), selecting("storage")), selectorProhibited + ofNode1,
		},
		"another selector while the request is being deleted since a moment, and its node is gone": {
			with(dies(object("Reboot", "default", "node-1", "1"), clock.RealClock{}.Now())), check(), check(remediating("1"), selecting("storage")), selectorProhibited + ofNode1,
		},
		"another selector while the remediator of a node that is gone clings to its request": {
			with(dying(object("Reboot", "default", "node-1", "1"))), check(), check(remediating("1"), selecting("storage")), "",
		},
		"another selector when the status does not know the UID": {running, check(), check(remediating(""), selecting("storage")), selectorProhibited + ofNode1},
		"another selector when the status names nothing": {running, check(), check(selecting("storage"), func(c *nhcv1.NodeHealthCheck) {
			c.Status.UnhealthyNodes = []nhcv1.UnhealthyNode{{Name: "node-1", Remediations: []nhcv1.Remediation{{}, {Resource: *ref("", "node-1")}}}}
		}), ""},
		"another selector when the requests may not be read":       {failing("Reboot", forbidden("reboots")), check(), check(remediating("1"), selecting("storage")), unknownRequest},
		"a pause when the requests may not be read":                {failing("Reboot", forbidden("reboots")), check(), check(remediating("1"), otherwise), ""},
		"a pause of a check with an invalid selector":              {with(), check(badSelector), check(badSelector, otherwise), ""},
		"a pause of a check with two templates of a kind":          {with(), check(twice), check(twice, otherwise), ""},
		"a pause in a cluster of an unsupported topology":          {with(topologyOf("DualReplica")), check(), check(otherwise), ""},
		"another selector in a cluster of an unsupported topology": {with(topologyOf("DualReplica")), check(), check(selecting("storage")), "Unsupported control plane topology"},
		"C16: an invalid selector":                                 {with(), check(), check(badSelector), badOperator},
		"C18: a second template of a kind":                         {with(), check(steps(step(1, "RebootTemplate", "a"))), check(twice), duplicate},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := row.observed.validation(t).ValidateUpdate(t.Context(), row.was, row.is)
			expect(t, err, row.want)
		})
	}
}

// otherwise changes all fields that may be changed at any time.
func otherwise(c *nhcv1.NodeHealthCheck) {
	c.Spec.PauseRequests = []string{"for the test"}
	c.Spec.MinHealthy = ptr.To(intstr.Parse("60%"))
	c.Spec.UnhealthyConditions = c.Spec.UnhealthyConditions[:1]
	c.Spec.StormCooldownDuration = &metav1.Duration{Duration: time.Minute}
	c.Spec.HealthyDelay = &metav1.Duration{Duration: -1}
}

func twice(c *nhcv1.NodeHealthCheck) {
	steps(step(1, "RebootTemplate", "a"), step(2, "RebootTemplate", "b"))(c)
}

func dying(o client.Object) client.Object {
	return dies(o, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
}

func dies(o client.Object, at time.Time) client.Object {
	o.SetFinalizers([]string{"test.io/remediator"})
	o.SetDeletionTimestamp(&metav1.Time{Time: at})
	return o
}

func node1() client.Object { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}} }

func TestDeletion(t *testing.T) {
	for name, row := range map[string]struct {
		observed observed
		check    *nhcv1.NodeHealthCheck
		want     string
	}{
		"C20: during a remediation":                  {with(object("Reboot", "default", "node-1", "1")), check(remediating("1")), deletionProhibited + ofNode1},
		"C21: a node is listed without requests":     {with(), check(unhealthy), ""},
		"W8: the request has gone":                   {with(), check(remediating("1")), ""},
		"W8: another request has its name":           {with(object("Reboot", "default", "node-1", "2")), check(remediating("1")), ""},
		"W8: the kind of the request has gone":       {failing("Reboot", uninstalled("Reboot")), check(remediating("1")), ""},
		"the requests may not be read":               {failing("Reboot", forbidden("reboots")), check(remediating("1")), unknownRequest},
		"the request is in another namespace":        {with(object("Reboot", "elsewhere", "node-1", "1")), check(remediating("1")), ""},
		"nothing is listed":                          {with(), check(), ""},
		"the selector is invalid, and two of a kind": {with(), check(badSelector, twice), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := row.observed.validation(t).ValidateDelete(t.Context(), row.check)
			expect(t, err, row.want)
		})
	}
}

func expect(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	must.Equal(t, want, got, "refusal")
}

// If one kind cannot be read, an existing request of another kind is still found.
func TestARequestThatIsThereOutweighsOneThatCannotBeSeen(t *testing.T) {
	seen := check(remediating("1"), func(c *nhcv1.NodeHealthCheck) {
		c.Status.UnhealthyNodes = append(c.Status.UnhealthyNodes, nhcv1.UnhealthyNode{
			Name: "node-2", Remediations: []nhcv1.Remediation{{Resource: *ref("Replace", "node-2")}},
		})
	})
	w := failing("Reboot", forbidden("reboots"), object("Replace", "default", "node-2", "2"))
	_, err := w.validation(t).ValidateDelete(t.Context(), seen)
	expect(t, err, deletionProhibited+": node-2 (Replace default/node-2)")
}

// There may be as many requests as nodes, and a refusal names one. Requests may be cluster-scoped.
func TestARefusalNamesARequest(t *testing.T) {
	busy := check()
	var requests []client.Object
	for _, name := range []string{"node-4", "node-2"} {
		requests = append(requests, object("Reboot", "", name+"-x", types.UID(name)))
		busy.Status.UnhealthyNodes = append(busy.Status.UnhealthyNodes, nhcv1.UnhealthyNode{Name: name, Remediations: []nhcv1.Remediation{{
			Resource: corev1.ObjectReference{APIVersion: "test.io/v1", Kind: "Reboot", Name: name + "-x", UID: types.UID(name)},
		}}})
	}
	_, err := with(requests...).validation(t).ValidateDelete(t.Context(), busy)
	expect(t, err, deletionProhibited+": node-4 (Reboot node-4-x)")
}

// The API server would answer with the status of the failed read, and omit why the webhook has read the object.
func TestTheWholeRefusalIsAnswered(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Do(t, nhcv1.AddToScheme(scheme))
	raw, err := json.Marshal(check(remediating("1")))
	must.Do(t, err)
	webhook := admission.WithValidator(scheme, failing("Reboot", forbidden("reboots")).validation(t))
	answer := webhook.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Delete, OldObject: runtime.RawExtension{Raw: raw},
	}})
	if answer.Allowed || answer.Result.Message != unknownRequest {
		t.Errorf("allowed: %v, with %q, want %q", answer.Allowed, answer.Result.Message, unknownRequest)
	}
}

// stuck is an API server that does not answer until the context ends.
type stuck struct{ client.Reader }

func (stuck) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func (stuck) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAnAPIServerThatDoesNotAnswerInTimeRefusesAndDoesNotHang(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := NodeHealthCheck{Live: stuck{}}.ValidateDelete(ctx, check(remediating("1")))
	expect(t, err, "cannot find out whether a remediation is running: list Reboot: context deadline exceeded; "+
		"try again when kubemend can list Reboot (test.io/v1)")
}

func TestWhatDoesNotDependOnOtherObjectsReadsNothing(t *testing.T) {
	labelled := check(func(c *nhcv1.NodeHealthCheck) { c.Labels = map[string]string{"a": "b"} })
	said, err := NodeHealthCheck{}.ValidateUpdate(t.Context(), check(), labelled) // a read would panic
	if err != nil || said != nil {
		t.Errorf("refused with %v, warned of %q", err, said)
	}
}

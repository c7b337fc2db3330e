package nodehealthcheck

import (
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
)

func TestWhatBlocksARemediation(t *testing.T) {
	named := func(own bool, template string) func(*Node) {
		return func(n *Node) {
			obj := requestOf("Reboot", "a", map[bool]string{true: "r", false: "theirs"}[own])
			obj.SetAnnotations(map[string]string{nhcv1.TemplateNameAnnotation: template})
			n.Named = []*unstructured.Unstructured{obj}
		}
	}
	foreign := func(kind string) func(*Node) {
		return func(n *Node) { n.Others = []*unstructured.Unstructured{requestOf(kind, "theirs", "f")} }
	}
	upgraded := func(f *Facts) { f.Upgrade.Unread = true }
	unreadable := func(i int) func(*Facts) { return func(f *Facts) { f.Templates[i].Object = nil } }
	two := steps(reboot(0), reboot(0))
	five := func(f *Facts) {
		f.ControlPlane = &ControlPlane{Members: []controlplane.Member{
			seen("a", false), seen("b", true), seen("c", true), seen("d", true), seen("e", true),
		}}
	}
	for name, tc := range map[string]struct {
		given Facts
		want  []Reason // of the first node
	}{
		"nothing blocks an unhealthy node":     {of(lost()), nil},
		"a healthy node is not unhealthy":      {of(healthy()), []Reason{NotUnhealthy}},
		"a node that is gone":                  {of(gone()), []Reason{NodeGone}},
		"a pending node is within its timeout": {of(lost(since(time.Minute))), []Reason{"WithinTimeout"}},
		"a pending node knows what will block it": {
			of(lost(since(time.Minute), excluded)), []Reason{"WithinTimeout", "NodeExcluded"},
		},
		"while clocks differ by more than the shortest duration": {of(lost()).with(func(f *Facts) { f.ClockAhead = -time.Hour }), []Reason{"ManagerClockWrong"}},
		"not while they differ by less":                          {of(lost()).with(func(f *Facts) { f.ClockAhead = time.Minute }), nil},
		"a node that has left the selection":                     {of(lost(unselected, excluded)), []Reason{NotSelected}},
		"one that OpenShift is ending":                           {of(lost(terminating)).with(func(f *Facts) { f.TerminatingLeft = true }), []Reason{"NotJudged"}},
		"W25: none that it says it is not": {of(lost(terminating, func(n *Node) {
			n.Object.Status.Conditions[1].Status = bad
		})).with(func(f *Facts) { f.TerminatingLeft = true }), nil},
		"one that is terminating otherwise": {of(lost(terminating)), nil},
		"one that its user has excluded":    {of(lost(excluded)), []Reason{"NodeExcluded"}},
		"none with the label and no value":  {of(lost(labelled(nhcv1.ExcludeLabel, ""))), nil},
		"nor with another value":            {of(lost(labelled(nhcv1.ExcludeLabel, "false"))), nil},
		"one that is being deleted":         {of(lost(excluded, leaving(59*time.Minute))), []Reason{"NodeExcluded", "NodeBeingDeleted"}},
		"one that is, for an hour":          {of(lost(leaving(time.Hour))), []Reason{"NodeDeletionStuck"}},
		"what its Machine says, the latest first": {
			of(lost(machine(marked(clusterv1.PausedAnnotation), marked(clusterv1.MachineSkipRemediationAnnotation), func(m *Machine) {
				m.Unread, m.Object.DeletionTimestamp, m.Cluster.Spec.Paused = true, &metav1.Time{Time: epoch}, new(true)
			}))),
			[]Reason{MachineUnread, "ClusterPaused", "MachinePaused", "MachineSkipped", "MachineBeingDeleted"},
		},
		"another check of its Machine":           {of(lost(machine(watched))), []Reason{"OverlappingCheck"}},
		"an update of its Machine in place":      {of(lost(machine(updating))), []Reason{"MachineBeingUpdated"}},
		"one that made progress":                 {of(lost(machine(updatingSince(119 * time.Minute)))), []Reason{"MachineBeingUpdated"}},
		"not one without progress for two hours": {of(lost(machine(updatingSince(2 * time.Hour)))), nil},
		"but while its host is being serviced": {
			of(lost(machine(updatingSince(2*time.Hour), func(m *Machine) { m.Serviced = true }))), []Reason{"MachineBeingUpdated"},
		},
		"nor one that has failed":                    {of(lost(machine(updating, updateFailed))), nil},
		"C37: a lease that another holder has":       {of(lost(leased(leaseFor("NMO", time.Hour, 0, 0)))), []Reason{"LeaseTaken"}},
		"none that has expired":                      {of(lost(leased(leaseFor("NMO", time.Minute, 0, time.Hour)))), nil},
		"nor one of the check":                       {of(lost(leased(leaseFor(us, time.Hour, 0, 0)))), nil},
		"a request of a check that is gone":          {of(lost(orphaned)), []Reason{"OrphanedRequest"}},
		"W23: one of the same kind of another check": {of(lost(foreign("Reboot"))), []Reason{"ForeignRequest"}},
		"none of another kind":                       {of(lost(foreign("Replace"))), nil},
		"C36: the name, if another has it":           {of(lost(named(false, "reboot"))), []Reason{"ForeignRequest"}},
		"the name, if another template has it":       {of(lost(asked(on(-1)), named(true, "other"))), []Reason{"RequestOfOtherTemplate"}},
		"a template of Machines without one":         {of(lost()).with(steps(hostTemplate())), []Reason{TemplateOfMachines}},
		"a template elsewhere than its Machine":      {of(lost(machine())).with(steps(hostTemplate())), []Reason{TemplateElsewhere}},
		"none while a step is left that can be": {
			of(lost(since(time.Minute))).with(steps(hostTemplate(), reboot(0))), []Reason{"WithinTimeout"},
		},
		"nor if none can, before it is due": {
			of(lost(since(time.Minute))).with(steps(hostTemplate(), hostTemplate())), []Reason{"WithinTimeout", TemplateOfMachines},
		},
		"none where its Machine is":              {of(lost(machine(in("metal")))).with(steps(hostTemplate())), nil},
		"a check that is disabled, and says why": {of(lost()).with(func(f *Facts) { f.Disabled = Disabled{"X", "x"} }), []Reason{CheckDisabled}},
		"a limit that cannot be read":            {of(lost()).with(limit("many")), []Reason{CheckDisabled, "TooManyUnhealthy"}},
		"a template that could not be read":      {of(lost()).with(func(f *Facts) { f.Templates[0].Object = nil }), []Reason{"TemplateUnreadable"}},
		"one that the reader may not read": {
			of(lost()).with(func(f *Facts) { f.Templates[0].Object, f.Templates[0].Unread = nil, true }), []Reason{"MissingPermission"},
		},
		"a check that names none": {of(lost()).with(steps()), []Reason{NoTemplate}},
		"a pause, an upgrade, kubelets that are awaited and limits": {
			of(lost()).with(pausedBy("me"), upgraded, awaited, limit("0")),
			[]Reason{Paused, Upgrading, "KubeletsAwaited", "TooManyUnhealthy"},
		},
		"a storm that is not over": {
			of(lost()).with(storm), []Reason{"StormRecovery"},
		},
		"a control plane that was not read":       {of(lost(ofPlane)), []Reason{"ControlPlaneNotSeen"}},
		"nothing but that of the control plane":   {of(lost(ofPlane)).with(five), nil},
		"another node of the control plane first": {of(lost(ofPlane), lost(ofPlane, since(time.Hour))).with(five, func(f *Facts) { f.ControlPlane.Members[1].Node = controlplane.Silent }), []Reason{"NotFirstInQueue"}},
		"etcd": {
			of(lost(ofPlane)).with(five, func(f *Facts) {
				f.ControlPlane.Etcd = Etcd{There: true, Budgets: 1, Guards: map[string]string{"a": "guard"}}
			}),
			[]Reason{EtcdAtRisk},
		},
		"a remediation that is in progress":  {of(lost(asked())), []Reason{"RemediationInProgress"}},
		"one whose request is being deleted": {of(lost(asked(deleting(0), inStatus(24*time.Hour)))), []Reason{"RemediationInProgress"}},
		"a request of the last failure":      {of(lost(asked(deleting(0), kept))), []Reason{"RequestBeingDeleted"}},
		"requests that cannot be read":       {of(lost(func(n *Node) { n.Unseen = []Listed{{}} })), []Reason{"RequestsUnread"}},
		"a request that somebody deleted a moment ago": {
			of(lost(deletedBefore(1), func(n *Node) { n.Gone = []Listed{was(0, time.Second)} })), []Reason{"RequestDeleted"},
		},
		"one that was deleted again and again": {
			of(lost(deletedBefore(3), func(n *Node) { n.Gone = []Listed{was(0, 3*time.Minute)} })), []Reason{"RemediationLoop"},
		},
		"none that was, after its wait": {
			of(lost(deletedBefore(3), func(n *Node) { n.Gone = []Listed{was(0, 4*time.Minute)} })), nil,
		},
		"none that was deleted long ago":                     {of(lost(func(n *Node) { n.Gone = []Listed{was(0, time.Hour)} })), nil},
		"an escalation that came to nothing":                 {of(lost(asked(failed))).with(steps(reboot(0))), []Reason{NoTemplateLeft}},
		"nothing blocks a step that follows one that failed": {of(lost(asked(failed))).with(two), nil},
		"none follows while the check is paused":             {of(lost(asked(failed))).with(two, pausedBy("me")), []Reason{Paused}},
		"none follows while the cluster is upgraded":         {of(lost(asked(failed))).with(two, upgraded), []Reason{Upgrading}},
		"none follows while its Machine is not to be remediated": {
			of(lost(asked(failed), machine(marked(clusterv1.PausedAnnotation), marked(clusterv1.MachineSkipRemediationAnnotation)))).with(two), []Reason{"MachinePaused", "MachineSkipped"},
		},
		"none follows while kubelets are awaited":                       {of(lost(asked(failed))).with(two, awaited), []Reason{"KubeletsAwaited"}},
		"none follows for a node that is not selected any more either":  {of(lost(unselected, asked(failed))).with(two, awaited), []Reason{"KubeletsAwaited"}},
		"none follows while its template cannot be read":                {of(lost(asked(failed))).with(two, unreadable(1)), []Reason{"TemplateUnreadable"}},
		"one follows while the template of another step cannot be read": {of(lost(asked(failed))).with(two, unreadable(0)), nil},
		"W10: one follows however many nodes are unhealthy":             {of(lost(asked(failed))).with(two, limit("0")), nil},
		"W10: one follows in a storm":                                   {of(lost(asked(failed))).with(two, storm), nil},
		"one follows while another check watches the Machine":           {of(lost(asked(failed), machine(watched, updating))).with(two), nil},
		"W9: one follows after the node has left the selection":         {of(lost(asked(failed), unselected)).with(two), nil},
		"none follows while its user excludes the node":                 {of(lost(asked(failed), excluded)).with(two), []Reason{"NodeExcluded"}},
		"none follows while the Node is being deleted":                  {of(lost(asked(failed), leaving(0))).with(two), []Reason{"NodeBeingDeleted"}},
		"none follows while another holder has the lease":               {of(lost(asked(failed), leased(leaseFor("NMO", time.Hour, 0, 0)))).with(two), []Reason{"LeaseTaken"}},
		"a request of the last failure has its own name":                {of(lost(asked(deleting(0), kept), named(true, "reboot"))), []Reason{"RequestBeingDeleted"}},
		"a pending node with a request waits for its time":              {of(lost(since(time.Minute), asked())), []Reason{"WithinTimeout"}},
		"a step of a template whose request is there": {
			of(lost(asked(failed), func(n *Node) {
				n.Named = []*unstructured.Unstructured{nil, requestOf("Reboot", "a", "r")}
			})).with(two), []Reason{"RequestOfOtherTemplate"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			d := p.Decisions[0]
			if diff := cmp.Diff(tc.want, reasons(d.Blockers), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("blockers (-want +got):\n%s", diff)
			}
			if d.starts() != (len(d.Blockers) == 0) {
				t.Errorf("starts: %t", d.starts())
			}
			for _, b := range d.Blockers {
				worded(t, b)
			}
		})
	}
}

// worded expects that a blocker has texts, unless its rule has no message, and that they do not end with a full stop.
func worded(t *testing.T, b Blocker) {
	t.Helper()
	if strings.HasSuffix(b.Text+b.Fix, ".") || strings.HasSuffix(b.EndsWhen, ".") {
		t.Errorf("%s says %+v", b.Reason, b)
	}
}

// A template for requests about Machines can be used for a node with a Machine in its namespace: a Machine of Cluster API or, if
// OpenShift's own operator may serve the kind, of OpenShift.
func TestWhichNodeATemplateOfMachinesCanBeAbout(t *testing.T) {
	openshift := func(namespace string) func(*Node) {
		return annotated(nhcv1.OpenShiftMachineAnnotation, namespace+"/m")
	}
	shared := func(t *Template) { t.Request.Group = infrastructureGroup }
	for name, tc := range map[string]struct {
		node   Node
		change func(*Template)
		want   Reason
	}{
		"a node of no Machine":                         {lost(), nil, TemplateOfMachines},
		"so it is if OpenShift may serve the template": {lost(), shared, TemplateOfMachines},
		"a Machine in the namespace of the template":   {lost(machine(in("metal"))), nil, ""},
		"a Machine in another namespace": {
			lost(machine()), nil, TemplateElsewhere,
		},
		"a Machine of OpenShift for a template that it does not serve": {
			lost(openshift("metal")), nil, TemplateOfMachines,
		},
		"a Machine of OpenShift for one that it serves": {lost(openshift("metal")), shared, ""},
		"one in another namespace": {
			lost(openshift("openshift-machine-api")), shared,
			TemplateElsewhere,
		},
		"a Machine of Cluster API elsewhere beside one of OpenShift": {lost(openshift("metal"), machine()), shared, ""},
	} {
		t.Run(name, func(t *testing.T) {
			template := hostTemplate()
			if tc.change != nil {
				tc.change(&template)
			}
			if got, why := template.Unsuitable(&tc.node); got != tc.want || (why == "") != (got == "") {
				t.Errorf("Unsuitable() = %s, %q, want %s", got, why, tc.want)
			}
			p := Decide(of(tc.node).with(func(f *Facts) { f.Templates = []Template{template} }))
			if got := p.Decisions[0].starts(); got != (tc.want == "") {
				t.Errorf("starts: %t", got)
			}
		})
	}
}

// At most one Machine owns a request: that of Cluster API, or else that of OpenShift.
func TestWhichMachineOwnsARequest(t *testing.T) {
	openshift := annotated(nhcv1.OpenShiftMachineAnnotation, "metal/m")
	here := machine(in("metal"))
	machines, nodes := hostTemplate(), reboot(0)
	machines.Request.Group = infrastructureGroup
	for name, tc := range map[string]struct {
		template           Template
		node               Node
		clusterAPI, byOpen bool
	}{
		"no Machine":                                  {machines, lost(), false, false},
		"a Machine of Cluster API":                    {machines, lost(here), true, false},
		"a Machine of OpenShift":                      {machines, lost(openshift), false, true},
		"both":                                        {machines, lost(here, openshift), true, false},
		"OpenShift's for requests of nodes":           {nodes, lost(annotated(nhcv1.OpenShiftMachineAnnotation, "remediators/m")), false, true},
		"OpenShift's elsewhere":                       {nodes, lost(openshift), false, false},
		"C70: Cluster API's for no requests of nodes": {nodes, lost(machine(in("remediators"))), false, false},
		"none, for a template without namespace":      {Template{}, lost(), false, false},
	} {
		must.Is(t, tc.clusterAPI, tc.template.OwnedByMachine(&tc.node), "%s: OwnedByMachine() =", name)
		must.Is(t, tc.byOpen, tc.template.OwnedByOpenShift(&tc.node), "%s: OwnedByOpenShift() =", name)
	}
}

func TestAnUpgradeThatBlocksIsNamed(t *testing.T) {
	reconfigured := annotated(OpenShiftDesiredConfig, "new")
	rolling := machine(rollingOut)
	for name, tc := range map[string]struct {
		given Facts
		want  string // of the first node
	}{
		"none":                                    {of(lost(machine())), ""},
		"whether there is one cannot be read":     {of(lost(reconfigured)).with(func(f *Facts) { f.Upgrade = Upgrade{true, "version"} }), "whether the cluster is being upgraded could not be found out"},
		"C68: of the node itself":                 {of(lost(reconfigured)), "the configuration of node a is being changed"},
		"of another unhealthy node":               {of(lost(), lost(reconfigured)), "the configuration of node b is being changed"},
		"of a healthy node: nothing":              {of(lost(), healthy(reconfigured)), ""},
		"of a pending node: nothing yet":          {of(lost(), lost(since(time.Minute), reconfigured)), ""},
		"but for the pending one":                 {of(lost(since(time.Minute), reconfigured)), "the configuration of node a is being changed"},
		"of OpenShift":                            {of(lost()).with(func(f *Facts) { f.Upgrade.Progressing = "version" }), "ClusterVersion version is progressing"},
		"of the Cluster of the node":              {of(lost(rolling)), "Cluster capi/home is rolling out"},
		"of the Cluster of another unhealthy one": {of(lost(), lost(rolling)), "Cluster capi/home is rolling out"},
		"of a Cluster without a Machine: nothing": {of(lost(func(n *Node) { n.Machine = &Machine{} })), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			for _, b := range Decide(tc.given).Decisions[0].Blockers {
				if b.Reason == Upgrading {
					got = strings.TrimPrefix(b.Text, PostponedByUpgrade+": ")
				}
			}
			must.Is(t, tc.want, got)
		})
	}
}

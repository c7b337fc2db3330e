package packages

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The example takes the place of the policy that comes with the manager, and bounds what goes out as well. A port that it
// does not name is closed, and one without peers is open to all.
func TestTheExampleOfANetworkPolicyIsTheManagersWithPeers(t *testing.T) {
	all := standalone(t)
	brought := as[networkingv1.NetworkPolicy](t, ofKind(all, "NetworkPolicy")[0])
	manager := as[appsv1.Deployment](t, ofKind(all, "Deployment")[0])
	examples := objects(t, read(t, "docs/examples/network-policy.yaml"))
	if len(examples) != 1 {
		t.Fatalf("there are %d objects, want one", len(examples))
	}
	policy := as[networkingv1.NetworkPolicy](t, &examples[0])

	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil || selector.Empty() || !selector.Matches(labels.Set(manager.Spec.Template.Labels)) || policy.Namespace != manager.Namespace {
		t.Errorf("it is for pods %s of namespace %q, which are not the manager's: %v", selector, policy.Namespace, err)
	}
	if !slices.Equal(policy.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}) {
		t.Errorf("it is about %v", policy.Spec.PolicyTypes)
	}
	open, declared := ports(policy.Spec.Ingress), []string{}
	for _, p := range manager.Spec.Template.Spec.Containers[0].Ports {
		declared = append(declared, p.Name)
	}
	slices.Sort(declared)
	if want := ports(brought.Spec.Ingress); !slices.Equal(open, want) || !slices.Equal(open, declared) {
		t.Errorf("it opens %v, the policy of the manager %v, and the manager has %v", open, want, declared)
	}
	for i, rule := range policy.Spec.Ingress {
		if len(rule.From) == 0 {
			t.Errorf("ingress %d is open to all", i)
		}
	}
	dns := 0
	for i, rule := range policy.Spec.Egress {
		if len(rule.To) == 0 || len(rule.Ports) == 0 {
			t.Errorf("egress %d leads everywhere", i)
		}
		for _, p := range rule.Ports {
			if p.Port == nil || p.Port.IntValue() == 0 { // a name would be one of a port of the peer, which is no pod
				t.Errorf("egress %d is for port %v", i, p.Port)
			} else if p.Port.IntValue() == 53 {
				dns++
			}
		}
	}
	if dns != 2 || len(policy.Spec.Egress) != 3 {
		t.Errorf("it leads out in %d ways, %d of them to port 53: want the API servers here and there, and names by UDP and TCP", len(policy.Spec.Egress), dns)
	}
}

// ports are the names of those that are open, sorted.
func ports(rules []networkingv1.NetworkPolicyIngressRule) []string {
	var open []string
	for _, rule := range rules {
		for _, p := range rule.Ports {
			open = append(open, p.Port.String())
		}
	}
	slices.Sort(open)
	return open
}

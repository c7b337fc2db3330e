package command

import (
	"fmt"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// kind is a kind of object that a user may name.
type kind string

const (
	machineKind      kind = "Machine"
	nodeKind         kind = "Node"
	hostKind         kind = "BareMetalHost"
	machineCheckKind kind = "MachineHealthCheck"
	nodeCheckKind    kind = "NodeHealthCheck"
	metal3Kind       kind = "Metal3Remediation"
	ownKind          kind = "HostRemediation"
	clusterKind      kind = "Cluster"
	deploymentKind   kind = "MachineDeployment"
	kubeadmKind      kind = "KubeadmControlPlane"
	podKind          kind = "Pod"
	namespaceKind    kind = "Namespace"
	policyKind       kind = "RemediationPolicy"
	overrideKind     kind = "RemediationOverride"
	domainKind       kind = "FailureDomain" // a target of RemediationOverrides, not an object
)

// known has the API group and the aliases of each kind. Messages use the first alias.
var known = map[kind]struct {
	schema.GroupVersion

	aliases []string
}{
	machineKind:      {clusterv1.GroupVersion, []string{"machine", "ma"}},
	nodeKind:         {corev1.SchemeGroupVersion, []string{"node", "no"}},
	hostKind:         {bmov1alpha1.GroupVersion, []string{"host", "bmh"}},
	machineCheckKind: {clusterv1.GroupVersion, []string{"mhc"}},
	nodeCheckKind:    {nhcv1.GroupVersion, []string{"nhc"}},
	clusterKind:      {clusterv1.GroupVersion, []string{"cluster", "cl"}},
	deploymentKind:   {clusterv1.GroupVersion, []string{"md"}},
	kubeadmKind:      {controlplanev1.GroupVersion, []string{"kcp"}},
	podKind:          {corev1.SchemeGroupVersion, []string{"pod", "po"}},
	namespaceKind:    {corev1.SchemeGroupVersion, []string{"namespace", "ns"}},
	policyKind:       {mendv1.GroupVersion, []string{"policy", "rpol"}},
	overrideKind:     {mendv1.GroupVersion, []string{"override", "rover"}},
	domainKind:       {mendv1.GroupVersion, []string{"failuredomain", "fd"}},
	metal3Kind:       {infrav1.GroupVersion, []string{"m3r", "m3remediation"}},
	ownKind:          {mendv1.GroupVersion, []string{"hrem"}},
}

func (k kind) alias() string { return known[k].aliases[0] }

func (k kind) gvk() schema.GroupVersionKind { return known[k].WithKind(string(k)) }

// kindCalled returns the kind of a name or alias, in the singular or the plural, with or without its group: machines.cluster.x-k8s.io.
func kindCalled(name string) (kind, bool) {
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	for k, called := range known {
		for _, alias := range append(called.aliases, strings.ToLower(string(k))) {
			if name == alias || name == alias+"s" {
				return k, true
			}
		}
	}
	return "", false
}

// subject is an object that a user names. The namespace is empty until it is taken from the flags, and with -A.
type subject struct {
	kind            kind
	namespace, name string
}

func (s subject) String() string {
	called := s.kind.alias() + "/" + s.name
	if s.namespace != "" && s.kind != nodeKind {
		called += " in " + s.namespace
	}
	return called
}

func (s subject) key() client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: s.name}
}

// parseSome parses the arguments of a command that takes one or several objects, as kubectl does: KIND/NAME... or KIND NAME...
func parseSome(args []string, expected ...kind) ([]subject, error) {
	if len(args) == 0 {
		return nil, Exit{Misused, fmt.Errorf("expected %s", spelled(expected, "/NAME"))}
	}
	called, names := args[0], args[1:]
	if len(names) == 0 || strings.Contains(called, "/") {
		called, names = "", args
	}
	named := make([]subject, len(names))
	for i, arg := range names {
		if k, _ := kindCalled(called); called != "" && strings.Contains(arg, "/") && k != podKind {
			const says = "%q: expected a name, as the kind is %s: write either KIND NAME or KIND/NAME"
			return nil, Exit{Misused, fmt.Errorf(says, arg, called)}
		} else if called != "" {
			arg = called + "/" + arg
		}
		var err error
		if named[i], err = parse(arg, expected...); err != nil {
			return nil, err
		}
	}
	return named, nil
}

func parseOne(args []string, expected ...kind) (subject, error) {
	named, err := parseSome(args, expected...)
	switch {
	case err != nil:
		return subject{}, err
	case len(named) > 1:
		return subject{}, Exit{Misused, fmt.Errorf("%q: expected one object, not %d", args, len(named))}
	}
	return named[0], nil
}

// kindAlone parses the arguments of a command that selects objects of one kind by their labels: the kind.
func kindAlone(args []string, expected ...kind) (kind, error) {
	if len(args) == 1 {
		if k, isKnown := kindCalled(args[0]); isKnown && slices.Contains(expected, k) {
			return k, nil
		}
	}
	given := strings.Join(args, " ")
	return "", Exit{Misused, fmt.Errorf("%q: with --selector, expected one kind and no name: %s", given, spelled(expected, ""))}
}

func listOf(k kind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(known[k].WithKind(string(k) + "List"))
	return list
}

// parse parses an argument such as mhc/workers. It returns an error if the kind is not among the expected ones.
func parse(arg string, expected ...kind) (subject, error) {
	called, name, has := strings.Cut(arg, "/")
	k, isKnown := kindCalled(called)
	wrong := ""
	switch {
	case !has && isKnown:
		wrong = " is a kind without a name"
	case !has || called == "" || name == "" || strings.Contains(name, "/") && k != podKind: // a pod may be NAMESPACE/NAME
	case !isKnown:
		wrong = fmt.Sprintf(": there is no kind %q here", called)
	case !slices.Contains(expected, k):
		wrong = " names a " + string(k)
	default:
		return subject{kind: k, name: name}, nil
	}
	return subject{}, Exit{Misused, fmt.Errorf("%q%s: expected %s", arg, wrong, spelled(expected, "/NAME"))}
}

// spelled lists kinds as a user has to write them, each with the suffix: mhc/NAME or node/NAME.
func spelled(kinds []kind, suffix string) string {
	names := make([]string, 0, len(kinds))
	for _, k := range kinds {
		names = append(names, k.alias()+suffix)
	}
	return listed(names, "or")
}

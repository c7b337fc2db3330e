package nodes

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// remediator is a kind of requests with its kind of templates. The specs play its controller.
type remediator struct {
	kind   schema.GroupVersionKind // of the requests
	global bool                    // both kinds are cluster-scoped
}

func named(group, kind string) remediator {
	return remediator{kind: schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: kind}}
}

// The remediators that are installed: two that know only the contract, one of objects without namespace, those of medik8s, and that of
// the first documentation.
var (
	reboot    = named("test.kubemend.io", "RebootRemediation")
	replace   = named("test.kubemend.io", "ReplaceRemediation")
	global    = remediator{kind: schema.GroupVersionKind{Group: "test.kubemend.io", Version: "v1alpha1", Kind: "GlobalRemediation"}, global: true}
	selfNode  = named("self-node-remediation.medik8s.io", "SelfNodeRemediation")
	pill      = named("poison-pill.medik8s.io", "PoisonPillRemediation")
	fence     = named("fence-agents-remediation.medik8s.io", "FenceAgentsRemediation")
	deletion  = named("machine-deletion-remediation.medik8s.io", "MachineDeletionRemediation")
	provider  = named("medik8s.io", "ProviderXRemediation")
	misspelt  = named("medik8s.io", "ProviderXRemdiation") // as the first documentation has it where it prints a template
	metal3    = remediator{kind: schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "Metal3Remediation"}}
	hosts     = named("kubemend.io", "HostRemediation")
	late      = named("late.example.org", "LateRemediation")          // whose kinds are installed by a spec
	uninvited = named("absent.example.org", "UninstalledRemediation") // whose kinds are not installed

	remediators = []remediator{reboot, replace, global, selfNode, pill, fence, deletion, provider, misspelt, late}
)

// templates is the kind of the remediator's templates.
func (r remediator) templates() schema.GroupVersionKind {
	return r.kind.GroupVersion().WithKind(r.kind.Kind + "Template")
}

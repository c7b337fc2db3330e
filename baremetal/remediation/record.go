package remediation

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// Record is what a remediation remembers of itself: the memory of the power cycle, and the names of what it is about. It is stored in an
// annotation, which survives `clusterctl move` and CRDs without fields for it.
type Record struct {
	powercycle.Memory `json:",inline"`

	// UID is that of the remediation that wrote this. One that was moved has another UID, and is known on its host by the old one.
	UID types.UID `json:"uid,omitempty"`
	// HostUID is that of the host that was asked to power off, or to reboot: a new host of the same name was not.
	HostUID types.UID `json:"hostUID,omitempty"`
	// Machine is the name of the machine. A record that names another one than the owner is not that of this remediation.
	Machine string `json:"machine,omitempty"`
	// Host, Node and Cluster are names, for when nothing else has them any more.
	Host    string `json:"host,omitempty"`
	Node    string `json:"node,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// ControlPlane says that the machine is one, by its label or by those of its Node, which may not be read later.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// MayControl says that it may be one: the API of its cluster did not answer before its Node was seen, and no Machine has the label.
	MayControl bool `json:"mayControl,omitempty"`
	// Filter is the value of the flag --watch-filter under which the remediation began: it ends under it, also without the label.
	Filter string `json:"filter,omitempty"`
	// BootID is the node's from before the power cycle: a node that says it is ready under the same one has not booted yet.
	BootID string `json:"bootID,omitempty"`
	// NodeUID is the node's from before the power cycle: another node of its name is not fenced.
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// BootSeconds is how long a boot of the host may take by its last one; zero before that was looked up.
	BootSeconds int64 `json:"bootSeconds,omitempty"`
	// Pods are those that had to move when the node was fenced; nil if that is not known. What has come since has never run on the host.
	Pods []types.UID `json:"pods,omitzero"`
}

// RecordOf reads what rem remembers. A record that cannot be read is an error: to begin anew could do everything twice. The record that
// comes with the error is that of a remediation that has failed for it, and releases what is known without it.
func RecordOf(rem client.Object) (Record, error) {
	value, found := rem.GetAnnotations()[mendv1.PowerCycleAnnotation]
	if !found {
		return Record{}, nil
	}
	var r Record
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		err = fmt.Errorf("metadata.annotations[%s]: expected what kubemend wrote there: %w", mendv1.PowerCycleAnnotation, err)
		return Record{Memory: powercycle.Memory{State: powercycle.Failed, Fencing: true, Cause: powercycle.Cause{Said: err.Error()}}}, err
	}
	return r, nil
}

// Remembered is the record of rem; an empty one if it cannot be read.
func Remembered(rem client.Object) Record {
	if rec, err := RecordOf(rem); err == nil {
		return rec
	}
	return Record{}
}

// Encode is the record as it is stored.
func (r Record) Encode() (string, error) {
	content, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode what is remembered: %w", err)
	}
	return string(content), nil
}

// By is rem as it is known on its host. The UID in the record must have been checked before (see Existing.Former).
func (r Record) By(rem client.Object) host.Remediation {
	who := host.Remediation{UID: rem.GetUID()}
	if r.UID != who.UID {
		who.Before = r.UID
	}
	return who
}

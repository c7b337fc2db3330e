package hostremediation

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// record is what a remediation remembers of itself: the state machine's memory, and of whom and what it is. It is stored in an
// annotation, which survives `clusterctl move` and CRDs that know no fields of ours.
type record struct {
	powercycle.Memory `json:",inline"`

	// UID is that of the remediation that wrote this; a moved one has another, and is known on its host by the old one.
	UID types.UID `json:"uid,omitempty"`
	// HostUID is that of the host that was asked to power off: one of the same name that was made anew was not.
	HostUID types.UID `json:"hostUID,omitempty"`
	// Machine is the name of the machine that it is about. A record that names another one than the owner is not that of this remediation.
	Machine string `json:"machine,omitempty"`
	// Host, Node and Cluster are their names, for when nothing else names them any more.
	Host    string `json:"host,omitempty"`
	Node    string `json:"node,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// Filter is the value of the flag --watch-filter under which it was begun: it is ended under it also when the label is gone.
	Filter string `json:"filter,omitempty"`
	// BootID is the node's from before the power cycle: a node that says it is ready under the same one has not booted yet.
	BootID string `json:"bootID,omitempty"`
	// NodeUID is the node's from before the power cycle: another node of its name is not fenced.
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// Deleted is when the node was about to be deleted, to fence it.
	Deleted time.Time `json:"deleted,omitzero"`
}

// recordOf reads what is remembered. What cannot be read is an error: to begin anew could do everything twice. The record that comes
// with the error has failed for it, and lets go of what is known without it.
func recordOf(rem client.Object) (record, error) {
	value, found := rem.GetAnnotations()[mendv1.PowerCycleAnnotation]
	if !found {
		return record{}, nil
	}
	var r record
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		err = fmt.Errorf("metadata.annotations[%s]: expected what kubemend wrote there: %w", mendv1.PowerCycleAnnotation, err)
		return record{Memory: powercycle.Memory{State: powercycle.Failed, Fencing: true, Cause: powercycle.Cause{Said: err.Error()}}}, err
	}
	return r, nil
}

// by is under which names the remediation is known on its host. Before it is asked for, the record must have been doubted.
func (r record) by(rem client.Object) host.Remediation {
	who := host.Remediation{UID: rem.GetUID()}
	if r.UID != who.UID {
		who.Before = r.UID
	}
	return who
}

package machinehealthcheck

import (
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

func version(name, version string) *clusterv1.Machine {
	m := a(name, health.Healthy).Machine
	m.ResourceVersion = version
	return m
}

func (o *ownWrites) reconciles(m *clusterv1.Machine) bool {
	return o.ignored().Update(event.UpdateEvent{ObjectOld: m, ObjectNew: m})
}

func TestOnlyTheEventOfAnOwnWriteIsIgnored(t *testing.T) {
	var own ownWrites
	own.note(version("m1", "8"))
	steps := []struct {
		name    string
		machine *clusterv1.Machine
		want    bool
	}{
		{"what came before the write, and is only told late, is looked at", version("m1", "7"), true},
		{"another machine of that version is looked at", version("m2", "8"), true},
		{"the write itself is not", version("m1", "8"), false},
		{"what others wrote on top of it is", version("m1", "9"), true},
		{"a version is ignored once: nothing is kept of it", version("m1", "8"), true},
	}
	for _, step := range steps {
		if got := own.reconciles(step.machine); got != step.want {
			t.Errorf("%s: reconciles: %t, want %t", step.name, got, step.want)
		}
	}
	own.note(version("m1", "10"))
	if !own.ignored().Delete(event.DeleteEvent{Object: version("m1", "11")}) {
		t.Error("the deletion of a machine is not looked at")
	}
	if len(own.written) > 0 {
		t.Errorf("of a machine that is gone something is kept: %v", own.written)
	}
}

// A reconcile that found the cache to be stale waits for nothing but the write. Its event must not be dropped then.
func TestTheEventOfAWriteEnqueuesTheReconcileThatWaitsForIt(t *testing.T) {
	var own ownWrites
	own.note(version("m1", "8"))
	if !own.stale(version("m1", "7")) {
		t.Error("a machine as it was before the write is not stale")
	}
	if !own.reconciles(version("m1", "8")) {
		t.Error("the event of the write is dropped while a reconcile waits for it")
	}
	if own.stale(version("m1", "8")) {
		t.Error("a machine as it was written is stale")
	}
}

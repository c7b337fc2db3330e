package powercycle

import "time"

// Policy is how to remediate. Of a remediation it has Retries, Timeout and Boot; the rest is the same for all (see PolicyOf).
type Policy struct {
	// Retries is how many attempts may follow the first.
	Retries int
	// Timeout bounds an attempt until its power-on is asked for, then once more until the host is on. Boot bounds the time until the
	// machine is healthy after that: a large server takes longer for its self-test than all the rest does.
	Timeout, Boot time.Duration
	// Move is the least that an attempt has to move the workload once its host is proven off. Kubernetes deletes the pods of a node that is
	// out of service in rounds of 20 s (kube-controller-manager, podgc), and detaches its volumes after that.
	Move time.Duration
	// Releasing is the most that a remediation that is over waits for a node that cannot be unfenced.
	Releasing time.Duration
	// Settle is how long a host that was off when it was asked has to stay off until a receipt is asked for: BMO reads a host's power once
	// a minute, and may have asked it to power on just before. After as long without a receipt a person is asked.
	Settle time.Duration
	// Doubt is how old a receipt has to be before it is believed: BMO writes its conditions after it has given it.
	Doubt time.Duration
	// Watch is how long a node is watched that may live: four times as long as a kubelet takes to renew its lease, after which the
	// controller manager calls it silent.
	Watch time.Duration
	// Skew is by how much the clocks of a node and of the manager may differ without that being taken for a sign of life.
	Skew time.Duration
	// Registering is how long a host that is gone may take to be registered anew until a person is asked.
	Registering time.Duration
	// Servicing is how long the firmware of a host may be written until a person is asked. Some take tens of minutes for each component.
	Servicing time.Duration
	// Unreachable is how long to wait for the API of the workload cluster while a host is held off that it may itself run on.
	Unreachable time.Duration
	// Queue is how long a remediation waits for its turn until a person is asked to see why.
	Queue time.Duration
}

// PolicyOf is the policy of a remediation.
func PolicyOf(retries int, timeout, boot time.Duration) Policy {
	return Policy{
		Retries: retries, Timeout: timeout, Boot: boot, Move: 2 * time.Minute, Releasing: time.Hour,
		Settle: 90 * time.Second, Doubt: 5 * time.Second, Watch: 40 * time.Second, Skew: 5 * time.Second,
		Registering: time.Hour, Servicing: 2 * time.Hour, Unreachable: time.Minute, Queue: 2 * time.Hour,
	}
}

// Attempts is how many attempts there may be.
func (p Policy) Attempts() int { return 1 + max(p.Retries, 0) }

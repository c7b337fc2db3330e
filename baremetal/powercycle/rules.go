package powercycle

const (
	checkTheBMC   = "check the BMC: its address, credentials and network"
	checkReadings = "check that the BMC address of the host belongs to this very host, and that its BMC reports the power correctly; "
	repairTheHost = "repair the host, then remove both unhealthy annotations"
	seeToTheQueue = "repair the control-plane members that the remediation waits for; to power-cycle the host all the same, " +
		"do it by hand, or delete the remediations that are ahead"
	confirmedOff    = "The Bare Metal Operator has confirmed that the host is off"
	noFault         = "; no power failure is reported, so kubemend waits for the Bare Metal Operator"
	firmwareUpdated = "The firmware of the host is being updated, which powers the host on; waiting until the update is done"
)

// rules has the rules of all reasons, in the order of a power cycle.
var rules []Rule

func says(rule Rule) Reason {
	rules = append(rules, rule)
	return rule.Reason
}

// The reasons of steps. Next never returns NoOwnerReason (a remediation that names no machine) or NoStrategyReason (one that asks for
// nothing).
var (
	NoOwnerReason = says(Rule{
		Reason: "NoOwner", Message: "Nothing is done: metadata.ownerReferences names no Machine of cluster.x-k8s.io",
		Fix: "add the owner reference",
	})
	NoStrategyReason = says(Rule{
		Reason: "NoStrategy", Message: "Nothing is done: spec.strategy.type is not Reboot",
		Fix: "set spec.strategy.type, also of the template",
	})
	StateUnknownReason = says(Rule{Reason: "StateUnknown", Message: "The stored state is not known; beginning anew"})
	PausedReason       = says(Rule{
		Reason: "Paused", Message: "The remediation is paused",
		variants: []variant{
			{do: Release, message: "The remediation is paused; the host is released"},
			{do: Unfence, message: "The remediation is paused; the fence is removed from the node"},
		},
		detail: func(c *Cycle) string { return c.Facts.Pause },
		Fix:    "when it may go on, remove the annotation cluster.x-k8s.io/paused, or set spec.paused of the Cluster to false",
		Blocks: true, Passes: true, OnHost: true,
	})

	WaitingInQueueReason = says(Rule{
		Reason: "WaitingInQueue", Message: "Waiting in its queue", detail: (*Cycle).queue,
		Blocks: true,
	})
	QueueTimedOutReason = says(Rule{
		Reason: "QueueTimedOut", Message: "The remediation has waited in its queue for too long, and keeps waiting",
		detail: func(c *Cycle) string { return joined(c.queue(), seeToTheQueue) }, Fix: seeToTheQueue,
		Blocks: true, OnMachine: true,
	})
	WaitingForPolicyReason = says(Rule{
		Reason: "WaitingForPolicy", Message: "The remediation may not begin now", detail: (*Cycle).queue,
		Blocks: true, Passes: true,
	})
	RemediationLoopReason = says(Rule{
		Reason:  "RemediationLoop",
		Message: "The host has failed soon after each power cycle; before the next one kubemend waits, longer each time",
		variants: []variant{{
			detail:  RecordsUnread,
			message: "How often the host was power-cycled before is not known yet, as the manager has just started",
		}},
		detail: (*Cycle).loop,
		Fix:    "look at the host's hardware and console; to have it power-cycled now, run kubectl mend remediate host/NAME",
		Blocks: true, Passes: true, OnHost: true, OnMachine: true,
	})
	ManagerRunsHereReason = says(Rule{
		Reason: "ManagerRunsHere", Message: "kubemend itself runs on this host, and would be switched off with it", detail: (*Cycle).queue,
		Fix:    "run two replicas, on two nodes, with --leader-elect",
		Blocks: true,
	})
	AttemptBeganReason = says(Rule{
		Reason: "AttemptBegan", Message: "An attempt has begun",
		variants: []variant{{do: Release, message: "An attempt has begun; the host is released from the last one first"}},
	})

	HostGoneReason = says(Rule{
		Reason: "HostGone", Message: "The host does not exist any more",
		variants: []variant{
			{detail: AsksPerson, message: "The host of the machine has been gone for more than an hour; waiting for it to come back"},
			{detail: HostRegistered,
				message: "The host was registered anew, and the time of the last attempt is over; the machine is not healthy"},
			{do: Wait, message: "The host of the machine cannot be found; waiting for it to come back"},
			{from: []State{Pending, Preparing}, message: "The machine has no host that could be power-cycled"},
		},
		detail: func(c *Cycle) string { return c.Facts.Mismatch }, Fix: "register the host again, or delete the Machine",
		Blocks: true, OnMachine: true,
	})
	HostMismatchReason = says(Rule{
		Reason: "HostMismatch", Message: "The host does not belong to the machine any more",
		variants: []variant{{from: []State{Pending, Preparing}, message: "The host does not belong to the machine"}},
		detail:   func(c *Cycle) string { return c.Facts.Mismatch },
		Fix:      "see spec.consumerRef of the host, and the annotation metal3.io/BareMetalHost of the Metal3Machine",
		Blocks:   true, OnMachine: true,
	})
	HostSwitchedOffReason = says(Rule{
		Reason: "HostSwitchedOff", Message: "The host is switched off by its owner; waiting until it is switched on again",
		variants: []variant{
			{detail: AsksPerson, message: "The host has been switched off by its owner for long; waiting until it is switched on again"},
			{do: Advance, message: "The host was switched off by its owner; the power cycle goes on when it is switched on again"},
		},
		Fix:    "set spec.online of the host to true when it is repaired, or delete the Machine",
		Blocks: true, Passes: true, OnMachine: true,
	})
	HostKeptOffReason = says(Rule{
		Reason: "HostKeptOff", Message: "Another client keeps the host powered off; waiting until its annotation is removed",
		variants: []variant{
			{detail: AsksPerson, message: "Another client has kept the host powered off for long; waiting until its annotation is removed"},
			{do: Advance, message: "Another client keeps the host powered off; the power cycle goes on when its annotation is removed"},
		},
		detail: func(c *Cycle) string { return "annotation " + c.Facts.KeptOffBy },
		Fix:    "remove the annotation when the host is to be on again",
		Blocks: true, Passes: true, OnMachine: true,
	})
	HostReleasedByOthersReason = says(Rule{
		Reason: "HostReleasedByOthers", Message: "No other client keeps the host powered off, paused or detached any more",
	})
	HostNotReadyReason = says(Rule{
		Reason: "HostNotReady", Message: "The Bare Metal Operator does not manage the host's power now; waiting until it does",
		variants: []variant{
			{detail: AsksPerson, message: "The Bare Metal Operator has not managed the host's power for long; waiting until it does"},
			{do: Advance, message: "The Bare Metal Operator does not manage the host's power now; the power cycle goes on when it does"},
		},
		detail: func(c *Cycle) string { return c.Facts.Unmanaged }, Fix: "unpause, attach or provision the host",
		Blocks: true, Passes: true, OnHost: true, OnMachine: true,
	})
	HostServicedReason = says(Rule{
		Reason: "HostServiced", Message: firmwareUpdated,
		variants: []variant{
			{detail: AsksPerson, message: "The firmware update of the host takes too long"},
			{do: Release, message: firmwareUpdated + "; the host is released, because it boots after the update"},
		},
		Fix:    "if the update hangs, see the BareMetalHost's error and its HostFirmwareSettings and HostFirmwareComponents",
		Blocks: true, Passes: true, OnMachine: true,
	})
	OperatorSilentReason = says(Rule{
		Reason: "OperatorSilent", Message: "The host was not seen on in time" + noFault,
		variants: []variant{
			{from: []State{PoweringOff}, message: "The host was not seen off in time" + noFault},
			{from: []State{Rebooting}, message: "The host was not rebooted in time" + noFault},
		},
		Fix:    "see that the Bare Metal Operator and Ironic run, and why they do nothing about this host",
		Blocks: true, OnHost: true, OnMachine: true,
	})
	RecoveredReason = says(Rule{Reason: "Recovered", Message: "The machine became healthy; its host is not touched"})

	PowerOffRequestedReason = says(Rule{
		Reason: "PowerOffRequested", Message: "The host is asked to power off",
		variants: []variant{
			{detail: KeptOffAlready, message: "The host is kept powered off already for this remediation; the attempt goes on from there"},
			{
				from:    []State{MovingWorkload},
				message: "Another client removed the annotation that keeps the host powered off; kubemend asks once more",
			},
		},
		OnHost: true,
	})
	StepUndoneReason = says(Rule{
		Reason: "StepUndone", Message: "Another client removed what kubemend wrote to the host; it is written again after a while",
		variants: []variant{
			{detail: AsksPerson, message: "Another client keeps removing what kubemend writes to host or node; it is written again " +
				"after a while"},
			{from: []State{MovingWorkload}, message: "Another client removed the fence from the node; it is fenced again after a while"},
		},
		detail: func(c *Cycle) string {
			if c.Facts.Undoers == "" {
				return ""
			}
			return "likely " + c.Facts.Undoers
		},
		Fix:    "find out who removes it, by metadata.managedFields and the audit log",
		Blocks: true, OnMachine: true,
	})
	PowerOffFailedReason = says(Rule{
		Reason: "PowerOffFailed", Message: "The host could not be powered off so far", Fix: checkTheBMC,
		Blocks: true,
	})
	PowerOffTimedOutReason = says(Rule{
		Reason: "PowerOffTimedOut", Message: "The host was not seen off in time", Fix: checkTheBMC,
		variants: []variant{{do: BeginAttempt, message: "The host was not seen off in time; one more attempt has begun"}},
	})
	PoweringOffReason = says(Rule{
		Reason: "PoweringOff", Message: "Waiting for the host to be off",
		variants: []variant{{detail: StatusOutdated, message: "The status of the host is older than the request to power off, " +
			"as after a restore from a backup; waiting for the Bare Metal Operator to read the host's power"}},
	})
	PowerSettlingReason = says(Rule{
		Reason: "PowerSettling", Blocks: true,
		Message: "The host was already off when its power-off was requested; waiting in case it was just powering on",
	})
	ReceiptRequestedReason = says(Rule{
		Reason: "ReceiptRequested", Message: "The host was already off; the Bare Metal Operator is asked to read its power again",
	})
	AwaitingReceiptReason = says(Rule{
		Reason: "AwaitingReceipt", Message: "The host was already off; waiting for the Bare Metal Operator to read its power again",
		Blocks: true,
	})
	ReceiptGivenReason = says(Rule{
		Reason: "ReceiptGiven", Message: confirmedOff, Blocks: true,
		variants: []variant{{do: Wait, message: confirmedOff + "; waiting a few seconds for errors that contradict this"}},
	})
	FencingImpossibleReason = says(Rule{
		Reason: "FencingImpossible", Message: "The host was not proven off in time; it is powered on again, and its node is not fenced",
		variants: []variant{
			{detail: NoReceipts, message: "The host was already off, and the Bare Metal Operator reports no proof that it still is"},
			{detail: ReceiptLate, message: "The host was already off, and the Bare Metal Operator has not read its power again"},
			{
				detail:  ReceiptContradicted,
				message: "The Bare Metal Operator has read the host's power again, but reports a problem; the host does not count as off",
			},
		},
		detail: (*Cycle).unproven,
		Fix: "see that the Bare Metal Operator and Ironic run and read this host's BMC; if you know that the host is off, put " +
			"the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute on its node by hand, and remove it afterwards",
		Blocks: true, OnHost: true, OnMachine: true, Warns: true,
	})
	PoweredOffReason     = says(Rule{Reason: "PoweredOff", Message: "The host is off"})
	PoweredOnAgainReason = says(Rule{
		Reason: "PoweredOnAgain", Message: "The host came on before the workload had moved", Fix: "find out who powers it on",
	})
	HoldRemovedReason = says(Rule{
		Reason: "HoldRemoved", Message: "The annotation that kept the host powered off is gone; the host is powered on, " +
			"and this attempt does not power it off again",
		Fix: "find out who removed the annotation",
	})
	SignOfLifeReason = says(Rule{
		Reason: "SignOfLife", Message: "The node is alive although its host was reported off; the host does not count as off",
		variants: []variant{{detail: ProofWrong, message: "The node stayed alive after it was fenced, although its host was reported " +
			"off: the reported power of the host is wrong, and the host is not power-cycled again"}},
		detail: func(c *Cycle) string {
			if c.Facts.NewBoot {
				return "it has booted"
			}
			return "its kubelet reports"
		},
		Fix:    checkReadings + "look for damaged data of its workload; then delete the remediation, and run kubectl mend reset host/NAME",
		OnHost: true, OnMachine: true, Warns: true,
	})
	PowerOffDisprovedReason = says(Rule{
		Reason: "PowerOffDisproved",
		Message: "After an earlier power-off of the host, its node stayed alive: the reported power of the host " +
			"cannot be trusted, and the host is not power-cycled until a person resets it",
		Fix:    checkReadings + "then run kubectl mend reset host/NAME, or remove its annotation kubemend.io/power-off-disproved",
		Blocks: true, OnHost: true, OnMachine: true,
	})

	FencedReason = says(Rule{
		Reason: "Fenced", Message: "The node is fenced, so that its workload can start elsewhere",
		variants: []variant{{
			detail: FencedBefore, message: "The node is fenced already, by a remediation that is gone; the fence is taken over",
		}},
	})
	WatchingForLifeReason = says(Rule{
		Reason: "WatchingForLife", Blocks: true,
		Message: "The node reported after its host was asked to power off; waiting to see whether it reports again",
	})
	NodeMismatchReason = says(Rule{
		Reason: "NodeMismatch", Message: "Another node has the name of the machine's node; it is not fenced, and the host is powered on",
		variants: []variant{
			{do: Advance, detail: NodeTwins, message: "Several nodes have the machine's provider ID; none is fenced, and the host is " +
				"powered on"},
			{detail: NodeTwins, message: "Several nodes have the machine's provider ID: it is not known which of them runs on the host"},
		},
		detail: func(c *Cycle) string { return c.Facts.Twin },
		Fix:    "see which machine the node belongs to: its spec.providerID, and those of the Machines",
		Blocks: true,
	})
	ClusterUnreachableReason = says(Rule{
		Reason: "ClusterUnreachable", Message: "Waiting for the workload cluster to be reachable",
		variants: []variant{
			{do: Advance, message: "The workload cluster does not answer while this control-plane host is off; " +
				"the host is powered on without waiting for its workload any longer"},
			{from: []State{Booting, RequestingOwner}, message: "The workload cluster cannot be asked whether the machine is healthy"},
		},
		detail: func(c *Cycle) string { return c.Facts.WhyUnseen },
		Fix:    "repair its API server, unless it only needs this host on", Blocks: true,
	})
	WorkloadMovingReason = says(Rule{
		Reason: "WorkloadMoving", Message: "Waiting for the workload to leave the node", detail: (*Cycle).LeftOnNode,
		variants: []variant{{detail: NodeIsGone, message: "The node is gone; waiting for its workload to go as well"}},
		Blocks:   true,
	})
	WorkloadStuckReason = says(Rule{
		Reason: "WorkloadStuck", Message: "The workload did not move in time; the host is powered on all the same",
		detail: (*Cycle).LeftOnNode,
		variants: []variant{
			{do: Unfence, message: "The workload did not move in time; the fence is removed from the node before its host is powered on"},
		},
		Fix: "check the finalizers of what is left, and the CSI driver's detach",
	})
	NodeGoneReason      = says(Rule{Reason: "NodeGone", Message: "There is no node any more, and nothing is left of its workload"})
	WorkloadMovedReason = says(Rule{
		Reason: "WorkloadMoved", Message: "The workload has moved", detail: func(c *Cycle) string { return c.Facts.IdleVolumes },
		variants: []variant{{detail: VolumesIdle, message: "The workload has moved, but volumes that no pod needs are still attached"}},
	})
	UnfencedReason = says(Rule{
		Reason: "Unfenced", Message: "The fence is removed from the node",
		variants: []variant{
			{from: []State{Preparing}, message: "The fence of the last attempt is removed from the node"},
			{from: []State{PoweringOff}, message: "The host is on while its node is fenced; the fence is removed until it is off again"},
			{from: []State{RequestingOwner}, message: "The fence is removed from the node before the owner of the machine is asked to " +
				"replace it"},
		},
	})

	PowerOnRequestedReason = says(Rule{Reason: "PowerOnRequested", Message: "The host is asked to power on"})
	PowerOnFailedReason    = says(Rule{
		Reason: "PowerOnFailed", Message: "The host could not be powered on so far", Fix: checkTheBMC,
		Blocks: true,
	})
	PowerOnTimedOutReason = says(Rule{
		Reason: "PowerOnTimedOut", Message: "The host was not seen on in time", Fix: checkTheBMC,
		variants: []variant{{do: BeginAttempt, message: "The host was not seen on in time; one more attempt has begun"}},
	})
	PoweringOnReason = says(Rule{Reason: "PoweringOn", Message: "Waiting for the host to be on"})
	PoweredOnReason  = says(Rule{
		Reason: "PoweredOn", Message: "The host is on",
		variants: []variant{{detail: NodeBooted, message: "The node has booted: the host is on"}},
	})
	PowerOffDisabledReason = says(Rule{
		Reason: "PowerOffDisabled", Message: "The host cannot be kept powered off; it is rebooted, and its node is not fenced",
		variants: []variant{
			{do: Release, message: "The host cannot be kept powered off any more; it is released, to be rebooted"},
			{from: []State{Rebooting}, message: "Waiting for the node's current boot ID, which is needed to recognize its next boot"},
		},
	})
	RebootRequestedReason = says(Rule{Reason: "RebootRequested", Message: "The host is asked to reboot", OnHost: true})
	RebootingReason       = says(Rule{Reason: "Rebooting", Message: "Waiting for the reboot to be carried out"})
	RebootAcceptedReason  = says(Rule{
		Reason:  "RebootAccepted",
		Message: "The Bare Metal Operator has accepted the reboot; the next boot of the node will show whether it was carried out",
	})
	RebootTimedOutReason = says(Rule{
		Reason: "RebootTimedOut", Message: "The host did not reboot in time", Fix: checkTheBMC,
		variants: []variant{{do: BeginAttempt, message: "The host did not reboot in time; one more attempt has begun"}},
	})
	ServicedReason = says(Rule{Reason: "Serviced", Message: "The firmware of the host was updated, and the host boots"})
	BootingReason  = says(Rule{
		Reason: "Booting", Message: "Waiting for the machine to be healthy",
		variants: []variant{{from: []State{Preparing}, message: "The host is switched on again; waiting for the machine to be healthy"}},
	})
	NodeStillUnhealthyReason = says(Rule{
		Reason: "NodeStillUnhealthy", Message: "The machine did not become healthy after the last attempt",
		variants: []variant{{do: BeginAttempt, message: "The machine did not become healthy in time; one more attempt has begun"}},
		Fix:      "look at the host's console",
	})

	RequestingOwnerReason = says(Rule{
		Reason: "RequestingOwner", Message: "The host is marked unhealthy, so that no new machine is put on it", Fix: repairTheHost,
		variants: []variant{{do: Release, message: "The host is released before the owner of the machine is asked to replace it"}},
	})
	OwnerRequestedReason = says(Rule{
		Reason: "OwnerRequested", Message: "The owner of the machine was asked to replace it", Fix: repairTheHost,
		variants: []variant{{do: RequestOwner, message: "The owner of the machine is asked to replace it"}},
		OnHost:   true, OnMachine: true,
	})
	HostExternalReason = says(Rule{
		Reason: "HostExternallyProvisioned", Message: "The attempts have not helped; the owner is not asked to replace the machine, " +
			"because the host is externally provisioned, and no new machine can be provisioned on it",
		Fix: "repair the host; to replace it, delete the Machine, and provision the new one as this one was", OnMachine: true,
	})
	OwnerlessReason = says(Rule{
		Reason: "MachineWithoutOwner", Message: "The attempts have not helped, and the machine has no owner that could replace it",
		Fix: "repair the host, or delete the Machine: it has no owner that could replace it", OnMachine: true,
	})

	MachineHealthyReason = says(Rule{
		Reason: "MachineHealthy", Message: "The machine is healthy",
		variants: []variant{
			{from: []State{RequestingOwner}, message: "The machine is healthy after all, and its owner is not asked to replace it"},
		},
	})
	NoLongerNeededReason = says(Rule{Reason: "NoLongerNeeded",
		Message: "The remediation is being deleted after its host was power-cycled"})
	CancelledReason       = says(Rule{Reason: "Cancelled", Message: "The remediation is being deleted", OnHost: true})
	MachineGoneReason     = says(Rule{Reason: "MachineGone", Message: "The machine does not exist any more"})
	MachineDeletingReason = says(Rule{Reason: "MachineDeleting", Message: "The machine is being deleted"})
	TimedOutByCheckReason = says(Rule{
		Reason: "TimedOutByCheck", Message: "The health check that asked for the remediation has timed it out", OnHost: true,
		Fix: "to give it more time, raise the timeout of that step of the check: each of the retryLimit + 1 attempts " +
			"may take 2 x timeoutSeconds and bootTimeoutSeconds",
	})
	TeardownReason        = says(Rule{Reason: "Teardown", Message: "kubemend is being removed, or power cycles are switched off"})
	FailedReason          = says(Rule{Reason: "Failed", Message: "The remediation has failed"})
	ReleasingReason       = says(Rule{Reason: "Releasing", Message: "The remediation has ended"})
	EndedReason           = says(Rule{Reason: "Ended", Message: "The remediation has ended"})
	UnfenceTimedOutReason = says(Rule{
		Reason: "UnfenceTimedOut", OnMachine: true, Warns: true,
		Message: "The fence could not be removed from the node in time; " +
			"kubemend does not wait any longer, and a person may have to remove it",
		Fix: "remove the taint node.kubernetes.io/out-of-service and the annotation kubemend.io/fenced-by by hand; see why it was refused",
	})
)

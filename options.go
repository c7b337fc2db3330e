package main

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capiflags "sigs.k8s.io/cluster-api/util/flags"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
)

// warmStandby lets a replica that is not the leader fill its caches, so that it takes over without reading everything first.
const warmStandby featuregate.Feature = "WarmStandby"

// hostRemediation power-cycles bare-metal hosts, for Metal3Remediations and HostRemediations.
const hostRemediation featuregate.Feature = "HostRemediation"

// nodeHealthCheck watches the nodes of the manager's own cluster, for NodeHealthChecks.
const nodeHealthCheck featuregate.Feature = "NodeHealthCheck"

// options are what the flags set.
type options struct {
	leaderElection   bool
	leaseNamespace   string
	leaseDuration    time.Duration
	renewDeadline    time.Duration
	retryPeriod      time.Duration
	namespace        string
	watchFilter      string
	healthAddr       string
	profilerAddr     string
	syncPeriod       time.Duration
	qps              float32
	burst            int
	clusterQPS       float32
	clusterBurst     int
	answerLimit      resource.QuantityValue
	checkConcurrency int
	cacheConcurrency int
	unclaimed        machinehealthcheck.Unclaimed

	metal3Remediations     crdgate.Choice
	fencing                fence.Mode
	orphanGrace            time.Duration
	remediationConcurrency int

	nodeHealthChecks     crdgate.Choice
	nodeCheckConcurrency int
	nodeLeaseNamespace   string
	nodeGrace            time.Duration
	defaultNodeCheck     nodehealthcheck.Template

	skipMigration []string
	leave         bool

	webhookHost    string
	webhookPort    int
	webhookCertDir string
	// diagnosticsCertDir is where the certificate of the diagnostics endpoint is; empty for that of the webhooks.
	diagnosticsCertDir string

	gates       featuregate.MutableFeatureGate
	diagnostics capiflags.ManagerOptions
	logs        *logs.Options
}

func defaults() *options {
	gates := featuregate.NewFeatureGate()
	// Adding to a gate that is new and not yet frozen cannot fail.
	_ = gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		warmStandby:     {Default: false, PreRelease: featuregate.Alpha},
		hostRemediation: {Default: true, PreRelease: featuregate.Beta},
		nodeHealthCheck: {Default: true, PreRelease: featuregate.Beta},
	})
	return &options{unclaimed: machinehealthcheck.Observe, metal3Remediations: crdgate.Auto, nodeHealthChecks: crdgate.Auto, fencing: fence.Auto,
		answerLimit: resource.QuantityValue{Quantity: resource.MustParse("16Mi")}, gates: gates, logs: logs.NewOptions()}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	o.addRemediationFlags(fs)
	o.addScopeFlags(fs)
	o.addElectionFlags(fs)
	o.addEndpointFlags(fs)
	o.gates.AddFlag(fs)
	capiflags.AddManagerOptions(fs, &o.diagnostics)
	logsv1.AddFlags(o.logs, fs)
}

// addRemediationFlags adds those that say what the controllers do.
func (o *options) addRemediationFlags(fs *pflag.FlagSet) {
	fs.Var(oneOf(&o.unclaimed, machinehealthcheck.Observe, machinehealthcheck.Act, machinehealthcheck.Ignore), "unclaimed-machine-health-checks",
		"What to do with a MachineHealthCheck that is not claimed with the annotation cluster.x-k8s.io/paused: kubemend. "+
			"observe: judge, export metrics, write nothing. act: remediate; only where Cluster API core leaves MachineHealthChecks alone. ignore: do not look.")
	fs.Var(oneOf(&o.metal3Remediations, crdgate.Auto, crdgate.On, crdgate.Off), "metal3-remediations",
		"Whether to act on Metal3Remediations. auto: unless their CRD belongs to CAPM3, or CAPM3's controller runs, which acts on them. "+
			"on, off: whatever the CRD says. "+
			"HostRemediations are acted on wherever their CRD is installed.")
	fs.Var(oneOf(&o.fencing, fence.Auto, fence.Taint, fence.Delete), "fencing",
		"How the workload of a node whose host is off is made to move. taint: by the out-of-service taint. delete: by deleting the node. "+
			"auto: by the taint where the workload cluster is of v1.28 or later, else by deleting.")
	fs.DurationVar(&o.orphanGrace, "orphan-grace-period", 5*time.Minute,
		"After how long an annotation that holds a BareMetalHost off is removed if its remediation does not exist.")
	fs.IntVar(&o.remediationConcurrency, "hostremediation-concurrency", 20, "Number of remediations of hosts, of each kind, to process at the same time.")
	fs.Var(oneOf(&o.nodeHealthChecks, crdgate.Auto, crdgate.On, crdgate.Off), "node-health-checks",
		"Whether to act on NodeHealthChecks. auto: unless their CRD was installed by the Operator Lifecycle Manager, with whose operator they belong, "+
			"or medik8s' operator runs. on, off: whatever the CRD says. They belong to no namespace: of several managers in one cluster, all but one need off.")
	fs.IntVar(&o.nodeCheckConcurrency, "nodehealthcheck-concurrency", 10, "Number of NodeHealthChecks to process at the same time.")
	fs.StringVar(&o.nodeLeaseNamespace, "node-lease-namespace", nhcv1.DefaultLeaseNamespace,
		"Namespace of the leases by which NodeHealthChecks and node maintenance keep out of each other's way. It has to be there, "+
			"with the Role kubemend-node-leases: the packages that have NodeHealthChecks bring both for the default.")
	fs.DurationVar(&o.nodeGrace, "node-monitor-grace-period", 50*time.Second,
		"How long kubelets have to report after the manager was started, or became the leader, or the API server was out of reach, before a "+
			"NodeHealthCheck begins a remediation. What the flag of the kube-controller-manager of this name says, whose default it has.")
	fs.Var(&o.defaultNodeCheck, "default-node-health-check-template",
		"Remediation template, as Kind.version.group/namespace/name, of the NodeHealthCheck "+nodehealthcheck.DefaultName+
			", which is made at start if there is none at all. If empty, none is made.")
	fs.StringSliceVar(&o.skipMigration, "skip-crd-migration-phases", nil,
		"What not to do when a release stores a kind that kubemend has installed in another version. StorageVersionMigration: store all objects anew. "+
			"CleanupManagedFields: forget who wrote fields in versions that are gone.")
	fs.BoolVar(&o.leave, "leave", false,
		"Do nothing but to take back everything of kubemend's, so that it can be removed: docs/uninstall.md. A replica is ready when nothing is left.")
}

// addScopeFlags adds those that say what is watched, and how much at a time.
func (o *options) addScopeFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.namespace, "namespace", "", "Namespace to watch for cluster-api objects. If empty, all namespaces are watched.")
	fs.StringVar(&o.watchFilter, "watch-filter", "",
		"Value of the label "+clusterv1.WatchLabel+" that cluster-api objects must have to be looked at. If empty, all are.")
	fs.IntVar(&o.checkConcurrency, "machinehealthcheck-concurrency", 50, "Number of MachineHealthChecks to process at the same time.")
	fs.IntVar(&o.cacheConcurrency, "clustercache-concurrency", 100, "Number of workload clusters to connect to, or probe, at the same time.")
	fs.DurationVar(&o.syncPeriod, "sync-period", 10*time.Minute,
		"After how long a MachineHealthCheck or a NodeHealthCheck is looked at although nothing happened.")

	fs.Float32Var(&o.qps, "kube-api-qps", 1000, "Maximum requests per second to the management cluster.")
	fs.IntVar(&o.burst, "kube-api-burst", 2000, "Maximum requests to the management cluster in one burst.")
	fs.Float32Var(&o.clusterQPS, "clustercache-client-qps", 100, "Maximum requests per second to each workload cluster.")
	fs.IntVar(&o.clusterBurst, "clustercache-client-burst", 200, "Maximum requests to each workload cluster in one burst.")

	fs.Var(&o.answerLimit, "clustercache-response-limit",
		"How long an answer of a workload cluster's API server may be, such as the list of its nodes; a quarter of that in JSON, and for pods. "+
			"A longer one is an error, "+
			"and is not asked for again for a while. For each half KiB of it a cluster may have one node.")
}

func (o *options) addElectionFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.leaderElection, "leader-elect", false, "Let only one of several replicas act at a time.")
	fs.StringVar(&o.leaseNamespace, "leader-elect-namespace", "",
		"Namespace of the lease by which the replicas agree, and of the one that says that a manager runs. "+
			"If empty, that of the pod; outside of a cluster it has to be given.")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long others wait before they take over from a silent leader.")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "How long a leader that cannot renew its lease goes on trying.")
	fs.DurationVar(&o.retryPeriod, "leader-elect-retry-period", 2*time.Second, "How long to wait between tries to take or renew the lease.")
}

// addEndpointFlags adds those of what the manager serves.
func (o *options) addEndpointFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.webhookHost, "webhook-host", "", "Address on which the webhooks listen. If empty, all of the machine or pod.")
	fs.IntVar(&o.webhookPort, "webhook-port", 9443,
		"Port of the webhooks: conversion of Metal3Remediations, defaults of templates, validation of NodeHealthChecks.")
	fs.StringVar(&o.webhookCertDir, "webhook-cert-dir", "", "Folder of the webhooks' certificate, tls.crt and tls.key. If empty, no webhooks are served.")
	fs.StringVar(&o.diagnosticsCertDir, "diagnostics-cert-dir", "",
		"Folder of the certificate of the diagnostics endpoint, tls.crt and tls.key. If empty, that of the webhooks; if there is none either, "+
			"the endpoint makes one itself, which nobody can verify.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address of the endpoints /healthz and /readyz.")
	fs.StringVar(&o.profilerAddr, "profiler-address", "", "Address of the pprof profiler, such as localhost:6060. If empty, there is none.")
}

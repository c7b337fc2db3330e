package setup

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/crdmigrator"
	capiflags "sigs.k8s.io/cluster-api/util/flags"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/flags"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrecord"
)

// warmStandby lets a replica that is not the leader fill its caches, so that it can act at once when it becomes the leader.
const warmStandby featuregate.Feature = "WarmStandby"

// hostRemediation power-cycles bare-metal hosts, for Metal3Remediations and HostRemediations.
const hostRemediation featuregate.Feature = "HostRemediation"

// nodeHealthCheck remediates the nodes of the manager's own cluster, for NodeHealthChecks.
const nodeHealthCheck featuregate.Feature = "NodeHealthCheck"

// Options are the values of the manager's flags.
type Options struct {
	machineHealthChecks machinehealthcheck.Options
	nodeHealthChecks    nodehealthcheck.Options
	hostRemediations    hostremediation.Options
	records             remediationrecord.Options

	webhooks webhook.Options
	// diagnosticsCertDir is the folder of the certificate of the metrics endpoint; if empty, that of the webhooks is used.
	diagnosticsCertDir, healthAddr, profilerAddr string
	diagnostics                                  capiflags.ManagerOptions
	// metal3Remediations and nodeChecks say whether to serve Metal3Remediations and NodeHealthChecks.
	metal3Remediations, nodeChecks crdgate.Choice
	// clusters configures the connections to workload clusters.
	clusters struct {
		qps                float32
		burst, concurrency int
		responseLimit      resource.QuantityValue
	}
	// election configures leader election. The manager lease is in the same namespace as the leader lease.
	election struct {
		enabled                                   bool
		namespace                                 string
		leaseDuration, renewDeadline, retryPeriod time.Duration
	}
	// teardown makes the manager only remove what kubemend wrote.
	teardown bool
	// skipMigration are the phases of Cluster API's CRD migrator to skip.
	skipMigration []string

	namespace       string
	policyNamespace string
	watchFilter     string
	syncPeriod      time.Duration
	qps             float32
	burst           int
	gates           featuregate.MutableFeatureGate
	// Logs are applied by main, because that is possible only once in a process.
	Logs *logs.Options
	// SkipNameValidation lets tests run several managers in a process, which otherwise refuses two controllers of the same name.
	SkipNameValidation bool
}

// NewOptions adds the flags of the manager to fs, and returns the options that they set.
func NewOptions(fs *pflag.FlagSet) *Options {
	o := &Options{gates: featuregate.NewFeatureGate(), Logs: logs.NewOptions()}
	// Adding features to a new gate cannot fail.
	_ = o.gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		warmStandby:     {Default: false, PreRelease: featuregate.Alpha},
		hostRemediation: {Default: true, PreRelease: featuregate.Beta},
		nodeHealthCheck: {Default: true, PreRelease: featuregate.Beta},
	})
	o.machineHealthChecks.AddFlags(fs)
	o.nodeHealthChecks.AddFlags(fs)
	o.hostRemediations.AddFlags(fs)
	o.records.AddFlags(fs)
	o.addEndpoints(fs)
	o.addKinds(fs)
	o.addClusters(fs)
	o.addElection(fs)
	fs.StringVar(&o.namespace, "namespace", "", "Namespace to watch for cluster-api objects. If empty, all namespaces are watched.")
	fs.StringVar(&o.policyNamespace, "policy-namespace", "",
		"Namespace whose RemediationPolicies reach all namespaces; those of any other reach that alone. "+
			"If empty, the value of --namespace, else of --leader-elect-namespace, else the namespace of the pod.")
	fs.StringVar(&o.watchFilter, "watch-filter", "",
		"Value of the label "+clusterv1.WatchLabel+" that cluster-api objects, or their Clusters if they have none, must have. "+
			"If empty, all match.")
	fs.DurationVar(&o.syncPeriod, "sync-period", 10*time.Minute,
		"How often to reconcile a MachineHealthCheck or a NodeHealthCheck when nothing changes.")
	fs.Float32Var(&o.qps, "kube-api-qps", 1000, "Maximum requests per second to the management cluster.")
	fs.IntVar(&o.burst, "kube-api-burst", 2000, "Maximum requests to the management cluster in one burst.")
	fs.BoolVar(&o.teardown, "teardown", false,
		"Only remove what kubemend wrote on objects, before it is uninstalled (docs/uninstall.md). "+
			"A replica is ready when nothing is left.")
	fs.StringSliceVar(&o.skipMigration, "skip-crd-migration-phases", nil,
		"Phases to skip when a release changes the stored version of a kind that kubemend installed. "+
			"StorageVersionMigration: store all objects anew. CleanupManagedFields: forget who wrote fields in versions that are gone.")
	o.gates.AddFlag(fs)
	logsv1.AddFlags(o.Logs, fs)
	return o
}

func (o *Options) addEndpoints(fs *pflag.FlagSet) {
	fs.StringVar(&o.webhooks.Host, "webhook-host", "", "Address on which the webhooks listen. If empty, all addresses.")
	fs.IntVar(&o.webhooks.Port, "webhook-port", 9443,
		"Port of the webhooks: conversion of Metal3Remediations, defaults of templates, validation of NodeHealthChecks.")
	fs.StringVar(&o.webhooks.CertDir, "webhook-cert-dir", "",
		"Folder of the webhooks' certificate, tls.crt and tls.key. If empty, no webhooks are served.")
	fs.StringVar(&o.diagnosticsCertDir, "diagnostics-cert-dir", "",
		"Folder of the certificate of the diagnostics endpoint, tls.crt and tls.key. If empty, that of the webhooks; without that the "+
			"endpoint makes one that clients cannot verify.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address of the endpoints /healthz and /readyz.")
	fs.StringVar(&o.profilerAddr, "profiler-address", "", "Address of the pprof profiler, such as localhost:6060. If empty, there is none.")
	capiflags.AddManagerOptions(fs, &o.diagnostics)
}

func (o *Options) addKinds(fs *pflag.FlagSet) {
	fs.Var(flags.OneOf(&o.metal3Remediations, crdgate.Auto, crdgate.On, crdgate.Off), "metal3-remediations",
		"Whether to act on Metal3Remediations. auto: unless their CRD belongs to CAPM3, or CAPM3's controller runs. on, off: always, "+
			"never. The manager acts on HostRemediations wherever their CRD is installed.")
	fs.Var(flags.OneOf(&o.nodeChecks, crdgate.Auto, crdgate.On, crdgate.Off), "node-health-checks",
		"Whether to act on NodeHealthChecks. auto: unless the Operator Lifecycle Manager installed their CRD, or medik8s' operator runs. "+
			"on, off: always, never. They have no namespace: of several managers in one cluster, all but one need off.")
}

func (o *Options) addClusters(fs *pflag.FlagSet) {
	fs.IntVar(&o.clusters.concurrency, "clustercache-concurrency", 100,
		"Number of workload clusters to connect to, or probe, at the same time.")
	fs.Float32Var(&o.clusters.qps, "clustercache-client-qps", 100, "Maximum requests per second to each workload cluster.")
	fs.IntVar(&o.clusters.burst, "clustercache-client-burst", 200, "Maximum requests to each workload cluster in one burst.")
	o.clusters.responseLimit.Quantity = resource.MustParse("16Mi")
	fs.Var(&o.clusters.responseLimit, "clustercache-response-limit",
		"Maximum size of an answer of a workload cluster's API server, such as the list of its nodes; a quarter of it for pods. "+
			"A longer answer is an error. A cluster may have one node for each half KiB.")
}

func (o *Options) addElection(fs *pflag.FlagSet) {
	fs.BoolVar(&o.election.enabled, "leader-elect", false, "Elect a leader, so that one of several replicas acts at a time.")
	fs.StringVar(&o.election.namespace, "leader-elect-namespace", "",
		"Namespace of the lease by which the replicas agree, and of the one that says that a manager runs. "+
			"If empty, that of the pod, and outside of a cluster "+managerlease.UsualNamespace+".")
	fs.DurationVar(&o.election.leaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"How long the other replicas wait before they replace a silent leader.")
	fs.DurationVar(&o.election.renewDeadline, "leader-elect-renew-deadline", 10*time.Second,
		"How long a leader that cannot renew its lease retries before it ends.")
	fs.DurationVar(&o.election.retryPeriod, "leader-elect-retry-period", 2*time.Second,
		"How long to wait between tries to take or renew the lease.")
}

// diagnosticsServer returns the options of the metrics endpoint. Without a certificate of its own, the endpoint uses that of the webhooks:
// clients cannot verify the self-signed certificate that it would generate.
func (o *Options) diagnosticsServer() (*metricsserver.Options, error) {
	_, diagnostics, err := capiflags.GetManagerOptions(o.diagnostics)
	if err != nil {
		return nil, fmt.Errorf("read the flags of the diagnostics endpoint: %w", err)
	}
	if diagnostics.SecureServing {
		diagnostics.CertDir = cmp.Or(o.diagnosticsCertDir, o.webhooks.CertDir)
	}
	return diagnostics, nil
}

// leaderLease returns the key of the leader lease. Its namespace is empty if neither the flag nor the pod has a namespace.
func (o *Options) leaderLease(podNamespace string) client.ObjectKey {
	return client.ObjectKey{Namespace: cmp.Or(o.election.namespace, podNamespace), Name: managerlease.LeaderLeaseName}
}

// Validate returns all invalid values of flags that the types of the flags accept. Call it first: with an invalid value, libraries silently
// use a default, or fail much later with an error that does not name the flag.
func (o *Options) Validate() error {
	var wrong []error
	if o.webhooks.Port < 1 || o.webhooks.Port > 65535 {
		wrong = append(wrong, fmt.Errorf("--webhook-port %d: must be a port, 1 to 65535", o.webhooks.Port))
	}
	_, err := o.diagnosticsServer() // fails for invalid TLS versions and cipher suites
	wrong = append(wrong, err)
	for _, phase := range o.skipMigration {
		all := []crdmigrator.Phase{crdmigrator.StorageVersionMigrationPhase, crdmigrator.CleanupManagedFieldsPhase}
		if !slices.Contains(all, crdmigrator.Phase(phase)) {
			wrong = append(wrong, fmt.Errorf("--skip-crd-migration-phases %q: must be of %v", phase, all))
		}
	}
	return errors.Join(
		o.machineHealthChecks.Validate(), o.nodeHealthChecks.Validate(), o.hostRemediations.Validate(), o.records.Validate(),
		flags.Positive("clustercache-concurrency", o.clusters.concurrency), flags.Positive("clustercache-client-qps", o.clusters.qps),
		flags.Positive("clustercache-client-burst", o.clusters.burst),
		flags.Positive("clustercache-response-limit", o.clusters.responseLimit.Value()), errors.Join(wrong...),
		flags.Positive("leader-elect-retry-period", o.election.retryPeriod),
		flags.Longer("leader-elect-renew-deadline", o.election.renewDeadline, "leader-elect-retry-period", o.election.retryPeriod),
		flags.Longer("leader-elect-lease-duration", o.election.leaseDuration, "leader-elect-renew-deadline", o.election.renewDeadline),
		flags.NamespaceIfAny("leader-elect-namespace", o.election.namespace),
		flags.Address("health-addr", o.healthAddr), flags.Address("profiler-address", o.profilerAddr),
		flags.Address("diagnostics-address", o.diagnostics.DiagnosticsAddress),
		flags.NamespaceIfAny("namespace", o.namespace), flags.NamespaceIfAny("policy-namespace", o.policyNamespace),
		flags.LabelValue("watch-filter", o.watchFilter), flags.Positive("sync-period", o.syncPeriod),
		flags.Positive("kube-api-qps", o.qps), flags.Positive("kube-api-burst", o.burst),
	)
}

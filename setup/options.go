package setup

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/flags"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/leftovers"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/migration"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/process"
	"github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/workload"
)

// warmStandby lets a replica that is not the leader fill its caches, so that it takes over without reading everything first.
const warmStandby featuregate.Feature = "WarmStandby"

// hostRemediation power-cycles bare-metal hosts, for Metal3Remediations and HostRemediations.
const hostRemediation featuregate.Feature = "HostRemediation"

// nodeHealthCheck watches the nodes of the manager's own cluster, for NodeHealthChecks.
const nodeHealthCheck featuregate.Feature = "NodeHealthCheck"

// Options are what the flags set: those of each controller, and those that several share.
type Options struct {
	machineHealthChecks machinehealthcheck.Options
	nodeHealthChecks    nodehealthcheck.Options
	hostRemediations    hostremediation.Options
	kinds               crdgate.Options
	clusters            workload.Options
	records             remediationrecord.Options
	migration           migration.Options
	teardown            leftovers.Options
	election            managerlease.Options
	endpoints           process.Options

	namespace   string
	watchFilter string
	syncPeriod  time.Duration
	qps         float32
	burst       int
	gates       featuregate.MutableFeatureGate
	// Logs are applied by the program: once in the life of a process.
	Logs *logs.Options
	// SkipNameValidation lets a process run one manager after another: the names of controllers are known from the first one.
	SkipNameValidation bool
}

// NewOptions adds the flags of the manager to fs and returns the options that these set.
func NewOptions(fs *pflag.FlagSet) *Options {
	o := &Options{gates: featuregate.NewFeatureGate(), Logs: logs.NewOptions()}
	// Adding to a gate that is new and not yet frozen cannot fail.
	_ = o.gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		warmStandby:     {Default: false, PreRelease: featuregate.Alpha},
		hostRemediation: {Default: true, PreRelease: featuregate.Beta},
		nodeHealthCheck: {Default: true, PreRelease: featuregate.Beta},
	})
	for _, group := range o.groups() {
		group.AddFlags(fs)
	}
	fs.StringVar(&o.namespace, "namespace", "", "Namespace to watch for cluster-api objects. If empty, all namespaces are watched.")
	fs.StringVar(&o.watchFilter, "watch-filter", "",
		"Value of the label "+clusterv1.WatchLabel+" that cluster-api objects, or their Clusters if they have none, must have. If empty, all match.")
	fs.DurationVar(&o.syncPeriod, "sync-period", 10*time.Minute,
		"How often to reconcile a MachineHealthCheck or a NodeHealthCheck when nothing changes.")
	fs.Float32Var(&o.qps, "kube-api-qps", 1000, "Maximum requests per second to the management cluster.")
	fs.IntVar(&o.burst, "kube-api-burst", 2000, "Maximum requests to the management cluster in one burst.")
	o.gates.AddFlag(fs)
	logsv1.AddFlags(o.Logs, fs)
	return o
}

// groups are the options that live with what they set.
func (o *Options) groups() []interface{ AddFlags(*pflag.FlagSet) } {
	return []interface{ AddFlags(*pflag.FlagSet) }{
		&o.machineHealthChecks, &o.nodeHealthChecks, &o.hostRemediations, &o.kinds, &o.clusters,
		&o.records, &o.migration, &o.teardown, &o.election, &o.endpoints,
	}
}

// Validate returns everything that is wrong with the values of flags and that their types let pass. It is asked before anything else is
// done: what the libraries make of such a value is an unwanted default, or an error a long time later that does not name the flag.
func (o *Options) Validate() error {
	var errs []error
	for _, group := range o.groups() {
		if checked, is := group.(interface{ Validate() error }); is {
			errs = append(errs, checked.Validate())
		}
	}
	return errors.Join(append(errs,
		flags.NamespaceIfAny("namespace", o.namespace), flags.LabelValue("watch-filter", o.watchFilter), flags.Positive("sync-period", o.syncPeriod),
		flags.Positive("kube-api-qps", o.qps), flags.Positive("kube-api-burst", o.burst),
	)...)
}

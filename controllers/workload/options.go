package workload

import (
	"errors"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubemend/kubemend/controllers/flags"
)

// Options are the settings of the connections to workload clusters.
type Options struct {
	QPS         float32
	Burst       int
	Concurrency int
	// ResponseLimit is how long an answer may be, in bytes.
	ResponseLimit resource.QuantityValue
}

// AddFlags adds the flags of the connections to fs and sets their defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.Concurrency, "clustercache-concurrency", 100, "Number of workload clusters to connect to, or probe, at the same time.")
	fs.Float32Var(&o.QPS, "clustercache-client-qps", 100, "Maximum requests per second to each workload cluster.")
	fs.IntVar(&o.Burst, "clustercache-client-burst", 200, "Maximum requests to each workload cluster in one burst.")
	o.ResponseLimit.Quantity = resource.MustParse("16Mi")
	fs.Var(&o.ResponseLimit, "clustercache-response-limit",
		"Maximum size of an answer of a workload cluster's API server, such as the list of its nodes; a quarter of it in JSON, and for pods. "+
			"A longer answer is an error. A cluster may have one node for each half KiB.")
}

// Validate returns everything that is wrong with the values that the types of the flags let pass.
func (o *Options) Validate() error {
	return errors.Join(
		flags.Positive("clustercache-concurrency", o.Concurrency), flags.Positive("clustercache-client-qps", o.QPS),
		flags.Positive("clustercache-client-burst", o.Burst), flags.Positive("clustercache-response-limit", o.ResponseLimit.Value()),
	)
}

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/cluster-api/controllers/crdmigrator"
)

// validate returns everything that is wrong with the values of flags and that their types let pass. It is asked before anything else is done: what the
// libraries make of such a value is a default that nobody wanted, or an error a long time later that does not name the flag.
func (o *options) validate() error {
	errs := []error{
		positive("machinehealthcheck-concurrency", o.checkConcurrency), positive("hostremediation-concurrency", o.remediationConcurrency),
		positive("nodehealthcheck-concurrency", o.nodeCheckConcurrency), positive("clustercache-concurrency", o.cacheConcurrency),
		positive("kube-api-qps", o.qps), positive("kube-api-burst", o.burst), positive("clustercache-client-qps", o.clusterQPS),
		positive("clustercache-client-burst", o.clusterBurst), positive("clustercache-response-limit", o.answerLimit.Value()),
		positive("sync-period", o.syncPeriod), notNegative("orphan-grace-period", o.orphanGrace), notNegative("node-monitor-grace-period", o.nodeGrace),
		positive("leader-elect-retry-period", o.retryPeriod),
		longer("leader-elect-renew-deadline", o.renewDeadline, "leader-elect-retry-period", o.retryPeriod),
		longer("leader-elect-lease-duration", o.leaseDuration, "leader-elect-renew-deadline", o.renewDeadline),
		namespace("node-lease-namespace", o.nodeLeaseNamespace),
		address("health-addr", o.healthAddr), address("profiler-address", o.profilerAddr), address("diagnostics-address", o.diagnostics.DiagnosticsAddress),
	}
	if o.namespace != "" {
		errs = append(errs, namespace("namespace", o.namespace))
	}
	if o.leaseNamespace != "" {
		errs = append(errs, namespace("leader-elect-namespace", o.leaseNamespace))
	}
	if wrong := validation.IsValidLabelValue(o.watchFilter); len(wrong) > 0 {
		errs = append(errs, fmt.Errorf("--watch-filter %q: must be the value of a label: %s", o.watchFilter, strings.Join(wrong, "; ")))
	}
	if o.webhookPort < 1 || o.webhookPort > 65535 {
		errs = append(errs, fmt.Errorf("--webhook-port %d: must be a port, 1 to 65535", o.webhookPort))
	}
	for _, phase := range o.skipMigration {
		all := []crdmigrator.Phase{crdmigrator.StorageVersionMigrationPhase, crdmigrator.CleanupManagedFieldsPhase}
		if !slices.Contains(all, crdmigrator.Phase(phase)) {
			errs = append(errs, fmt.Errorf("--skip-crd-migration-phases %q: must be of %v", phase, all))
		}
	}
	_, err := o.diagnosticsOptions() // versions and cipher suites of TLS
	return errors.Join(append(errs, err)...)
}

func positive[T cmp.Ordered](flag string, value T) error {
	if zero := *new(T); value <= zero {
		return fmt.Errorf("--%s %v: must be more than 0", flag, value)
	}
	return nil
}

func notNegative(flag string, value time.Duration) error {
	if value < 0 {
		return fmt.Errorf("--%s %v: must not be negative", flag, value)
	}
	return nil
}

func longer(flag string, value time.Duration, other string, than time.Duration) error {
	if value <= than {
		return fmt.Errorf("--%s %v: must be longer than --%s, which is %v", flag, value, other, than)
	}
	return nil
}

func namespace(flag, value string) error {
	if wrong := validation.IsDNS1123Label(value); len(wrong) > 0 {
		return fmt.Errorf("--%s %q: must be the name of a namespace: %s", flag, value, wrong[0])
	}
	return nil
}

// address asks for what a server may listen on. 0 is how controller-runtime says that there is none.
func address(flag, value string) error {
	if value == "" || value == "0" {
		return nil
	}
	if _, _, err := net.SplitHostPort(value); err != nil {
		return fmt.Errorf("--%s %q: must be an address with a port, such as :8443 or localhost:6060", flag, value)
	}
	return nil
}

// enum is a flag whose value is one of a few words.
type enum[T ~string] struct {
	value   *T
	allowed []T
}

// oneOf returns a flag that sets value to one of the allowed words and refuses every other one.
func oneOf[T ~string](value *T, allowed ...T) pflag.Value {
	return enum[T]{value: value, allowed: allowed}
}

// Set implements pflag.Value.
func (e enum[T]) Set(s string) error {
	if !slices.Contains(e.allowed, T(s)) {
		var words []string
		for _, word := range e.allowed {
			words = append(words, string(word))
		}
		return fmt.Errorf("must be one of %s", strings.Join(words, ", "))
	}
	*e.value = T(s)
	return nil
}

// String implements pflag.Value.
func (e enum[T]) String() string { return string(*e.value) }

// Type implements pflag.Value.
func (enum[T]) Type() string { return "string" }

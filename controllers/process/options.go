package process

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	capiflags "sigs.k8s.io/cluster-api/util/flags"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kubemend/kubemend/controllers/flags"
)

// Options are the settings of the manager's HTTP servers.
type Options struct {
	WebhookHost    string
	WebhookPort    int
	WebhookCertDir string
	// DiagnosticsCertDir is the folder of the certificate of the diagnostics endpoint; empty for that of the webhooks.
	DiagnosticsCertDir string
	HealthAddr         string
	ProfilerAddr       string

	diagnostics capiflags.ManagerOptions
}

// AddFlags adds the flags of the servers to fs and sets their defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.WebhookHost, "webhook-host", "", "Address on which the webhooks listen. If empty, all addresses.")
	fs.IntVar(&o.WebhookPort, "webhook-port", 9443,
		"Port of the webhooks: conversion of Metal3Remediations, defaults of templates, validation of NodeHealthChecks.")
	fs.StringVar(&o.WebhookCertDir, "webhook-cert-dir", "", "Folder of the webhooks' certificate, tls.crt and tls.key. If empty, no webhooks are served.")
	fs.StringVar(&o.DiagnosticsCertDir, "diagnostics-cert-dir", "",
		"Folder of the certificate of the diagnostics endpoint, tls.crt and tls.key. If empty, that of the webhooks; without that the "+
			"endpoint makes one that clients cannot verify.")
	fs.StringVar(&o.HealthAddr, "health-addr", ":9440", "Address of the endpoints /healthz and /readyz.")
	fs.StringVar(&o.ProfilerAddr, "profiler-address", "", "Address of the pprof profiler, such as localhost:6060. If empty, there is none.")
	capiflags.AddManagerOptions(fs, &o.diagnostics)
}

// Validate returns everything that is wrong with the values that the types of the flags let pass.
func (o *Options) Validate() error {
	var port error
	if o.WebhookPort < 1 || o.WebhookPort > 65535 {
		port = fmt.Errorf("--webhook-port %d: must be a port, 1 to 65535", o.WebhookPort)
	}
	_, diagnostics := o.Diagnostics() // versions and cipher suites of TLS
	return errors.Join(
		flags.Address("health-addr", o.HealthAddr), flags.Address("profiler-address", o.ProfilerAddr),
		flags.Address("diagnostics-address", o.diagnostics.DiagnosticsAddress), port, diagnostics,
	)
}

// Diagnostics are the options of the endpoint of metrics. It has the certificate of the webhooks, if there is one and no other is given:
// clients cannot verify a certificate that the endpoint makes itself when it starts.
func (o *Options) Diagnostics() (*metricsserver.Options, error) {
	_, diagnostics, err := capiflags.GetManagerOptions(o.diagnostics)
	if err != nil {
		return nil, fmt.Errorf("read the flags of the diagnostics endpoint: %w", err)
	}
	if diagnostics.SecureServing {
		diagnostics.CertDir = cmp.Or(o.DiagnosticsCertDir, o.WebhookCertDir)
	}
	return diagnostics, nil
}

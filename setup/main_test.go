package setup

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kubemend/kubemend/test/golden"
)

// docs/reference/flags.md is generated from the flags.
func TestFlagsAreDocumented(t *testing.T) {
	golden.Compare(t, "../docs/reference/flags.md", flagsDocument())
}

// ofLibraries has short help texts for flags of Kubernetes' libraries whose own help is longer than a line.
var ofLibraries = map[string]string{
	"diagnostics-address":       "Address of metrics, pprof and the log level, by HTTPS to clients that are authenticated and authorized.",
	"insecure-diagnostics":      "Serve metrics by HTTP to all clients, and neither pprof nor the log level.",
	"log-json-info-buffer-size": "Alpha. Buffer for info messages in JSON, with split streams; 0 is none.",
	"log-json-split-stream":     "Alpha. In JSON, write errors to stderr and info messages to stdout.",
	"log-text-info-buffer-size": "Alpha. Buffer for info messages in text, with split streams; 0 is none.",
	"log-text-split-stream":     "Alpha. In text, write errors to stderr and info messages to stdout.",
	"logging-format":            "Format of the log: text or json.",
	"tls-cipher-suites":         "Cipher suites of webhooks and metrics. If empty, Go's; manager --help lists them.",
	"tls-curve-preferences":     "Numeric CurveIDs of Go's crypto/tls for the key exchange of webhooks and metrics. If empty, Go's.",
	"tls-min-version":           "Minimum TLS version of webhooks and metrics: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13.",
}

func TestTheShorterMeaningsAreOfFlagsThatThereAre(t *testing.T) {
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	NewOptions(fs)
	for name, meaning := range ofLibraries {
		if f := fs.Lookup(name); f == nil || len(f.Usage) <= len(meaning) {
			t.Errorf("--%s needs no shorter meaning", name)
		}
	}
}

func flagsDocument() string {
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	NewOptions(fs)
	var b strings.Builder
	b.WriteString("# Flags of the manager\n\nGenerated from the program by `make generate`. Durations are written like `90s` or `5m`.\n\n")
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		usage := f.Usage
		if shorter := ofLibraries[f.Name]; shorter != "" {
			usage = shorter
		}
		usage = strings.NewReplacer("\n", "<br>", "|", "\\|").Replace(usage)
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s |\n", f.Name, f.DefValue, usage)
	})
	return b.String()
}

func TestAFlagOfAFewWordsTakesEachOfThemAndRefusesOthersWithWhatWasExpected(t *testing.T) {
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o := NewOptions(fs)
	if err := fs.Parse([]string{"--fencing=auto", "--fencing=taint"}); err != nil {
		t.Errorf("an older manifest is refused: %v", err)
	}
	var chart struct {
		Properties struct {
			Flags struct {
				Properties map[string]struct{ Enum []any }
			}
		}
	}
	if content, err := os.ReadFile("../charts/kubemend/values.schema.json"); err != nil || json.Unmarshal(content, &chart) != nil {
		t.Fatalf("read the schema of the Helm chart: %v", err)
	}
	for option, tc := range map[string]struct {
		words []string
		now   func() string
	}{
		"unclaimed-machine-health-checks": {[]string{"observe", "act", "ignore"}, func() string { return string(o.machineHealthChecks.Unclaimed) }},
		"metal3-remediations":             {[]string{"auto", "on", "off"}, func() string { return string(o.metal3Remediations) }},
		"node-health-checks":              {[]string{"auto", "on", "off"}, func() string { return string(o.nodeChecks) }},
	} {
		for _, word := range tc.words {
			if err := fs.Parse([]string{"--" + option + "=" + word}); err != nil || tc.now() != word {
				t.Errorf("--%s=%s: got %q and %v", option, word, tc.now(), err)
			}
		}
		words := slices.DeleteFunc(chart.Properties.Flags.Properties[option].Enum, func(word any) bool {
			_, is := word.(string) // others are null, and what YAML makes of on and off
			return !is
		})
		if fmt.Sprint(words) != fmt.Sprint(tc.words) {
			t.Errorf("--%s: the Helm chart allows %v", option, words)
		}
		before := tc.now()
		err := fs.Parse([]string{"--" + option + "=fight"})
		if err == nil || !strings.Contains(err.Error(), "must be one of "+strings.Join(tc.words, ", ")) {
			t.Errorf("--%s=fight: got %v, want an error that names what can be said", option, err)
		}
		if tc.now() != before {
			t.Errorf("--%s=fight: refused, and set to %q all the same", option, tc.now())
		}
	}
}

func TestMetricsHaveTheCertificateThatClientsVerify(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"that of the webhooks":                    {[]string{"--webhook-cert-dir=/webhooks"}, "/webhooks"},
		"one of its own":                          {[]string{"--webhook-cert-dir=/webhooks", "--diagnostics-cert-dir=/metrics"}, "/metrics"},
		"one of its own without webhooks":         {[]string{"--diagnostics-cert-dir=/metrics"}, "/metrics"},
		"one that it makes itself without either": {nil, ""},
		"none in clear text":                      {[]string{"--webhook-cert-dir=/webhooks", "--insecure-diagnostics"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := parsed(t, tc.args...).diagnosticsServer(); err != nil || got.CertDir != tc.want {
				t.Errorf("the certificate is in %q, %v; want %q", got.CertDir, err, tc.want)
			}
		})
	}
}

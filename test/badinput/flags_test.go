package badinput

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// flag are arguments that a program refuses.
type flag struct {
	program string
	args    []string
	says    string
}

var flags = []flag{
	{"manager", []string{"--unclaimed-machine-health-checks=fight"}, `invalid argument "fight" for "--unclaimed-machine-health-checks" flag: must be one of observe, act, ignore`},
	{"manager", []string{"--metal3-remediations=maybe"}, `invalid argument "maybe" for "--metal3-remediations" flag: must be one of auto, on, off`},
	{"manager", []string{"--node-health-checks=maybe"}, `invalid argument "maybe" for "--node-health-checks" flag: must be one of auto, on, off`},
	{"manager", []string{"--fencing=delete"}, `invalid argument "delete" for "--fencing" flag: nodes are fenced by the out-of-service taint alone, ` +
		`which every Kubernetes that Cluster API supports has: remove the flag`},
	{"manager", []string{"--sync-period=often"}, `"often" for "--sync-period" flag: must be a duration like "30s" or "5m"`},
	{"manager", []string{"--machinehealthcheck-concurrency=many"}, `invalid argument "many" for "--machinehealthcheck-concurrency" flag`},
	{"manager", []string{"--kube-api-qps=fast"}, `invalid argument "fast" for "--kube-api-qps" flag`},
	{"manager", []string{"--webhook-port=https"}, `invalid argument "https" for "--webhook-port" flag`},
	{"manager", []string{"--feature-gates=None=true"}, `invalid argument "None=true" for "--feature-gates" flag: unrecognized feature gate: None`},
	{"manager", []string{"--no-such-flag"}, "unknown flag: --no-such-flag"},
	{"manager", []string{"--sync-period=-5m"}, `--sync-period -5m0s: must be more than 0`},
	{"manager", []string{"--sync-period=0"}, `--sync-period 0s: must be more than 0`},
	{"manager", []string{"--machinehealthcheck-concurrency=0"}, `--machinehealthcheck-concurrency 0: must be more than 0`},
	{"manager", []string{"--hostremediation-concurrency=-1"}, `--hostremediation-concurrency -1: must be more than 0`},
	{"manager", []string{"--nodehealthcheck-concurrency=0"}, `--nodehealthcheck-concurrency 0: must be more than 0`},
	{"manager", []string{"--clustercache-concurrency=0"}, `--clustercache-concurrency 0: must be more than 0`},
	{"manager", []string{"--kube-api-qps=0"}, `--kube-api-qps 0: must be more than 0`},
	{"manager", []string{"--kube-api-burst=-1"}, `--kube-api-burst -1: must be more than 0`},
	{"manager", []string{"--clustercache-client-qps=-1"}, `--clustercache-client-qps -1: must be more than 0`},
	{"manager", []string{"--clustercache-client-burst=0"}, `--clustercache-client-burst 0: must be more than 0`},
	{"manager", []string{"--clustercache-response-limit=some"}, `invalid argument "some" for "--clustercache-response-limit" flag: quantities must match`},
	{"manager", []string{"--clustercache-response-limit=0"}, `--clustercache-response-limit 0: must be more than 0`},
	{"manager", []string{"--orphan-grace-period=-5m"}, `--orphan-grace-period -5m0s: must not be negative`},
	{"manager", []string{"--node-monitor-grace-period=-1s"}, `--node-monitor-grace-period -1s: must not be negative`},
	{"manager", []string{"--leader-elect-retry-period=0"}, `--leader-elect-retry-period 0s: must be more than 0`},
	{"manager", []string{"--leader-elect-renew-deadline=1s"}, `--leader-elect-renew-deadline 1s: must be longer than --leader-elect-retry-period, which is 2s`},
	{"manager", []string{"--leader-elect-lease-duration=5s"}, `--leader-elect-lease-duration 5s: must be longer than --leader-elect-renew-deadline, which is 10s`},
	{"manager", []string{"--namespace=Team_A"}, `--namespace "Team_A": must be the name of a namespace`},
	{"manager", []string{"--leader-elect-namespace=Team_A"}, `--leader-elect-namespace "Team_A": must be the name of a namespace`},
	{"manager", []string{"--node-lease-namespace="}, `--node-lease-namespace "": must be the name of a namespace`},
	{"manager", []string{"--watch-filter=a b"}, `--watch-filter "a b": must be the value of a label`},
	{"manager", []string{"--webhook-port=99999"}, `--webhook-port 99999: must be a port, 1 to 65535`},
	{"manager", []string{"--health-addr=nowhere"}, `--health-addr "nowhere": must be an address with a port`},
	{"manager", []string{"--profiler-address=nowhere"}, `--profiler-address "nowhere": must be an address with a port`},
	{"manager", []string{"--diagnostics-address=nowhere"}, `--diagnostics-address "nowhere": must be an address with a port`},
	{"manager", []string{"--skip-crd-migration-phases=All"}, `--skip-crd-migration-phases "All": must be of [StorageVersionMigration CleanupManagedFields]`},
	{"manager", []string{"--tls-min-version=VersionTLS9"}, `unknown tls version "VersionTLS9"`},
	{"manager", []string{"--tls-cipher-suites=NONE"}, `Cipher suite NONE not supported`},
	{"manager", []string{"--default-node-health-check-template=x"}, `invalid argument "x" for "--default-node-health-check-template" flag: must be Kind.version.group/namespace/name`},
	{"manager", []string{"--logging-format=poem"}, `set up logging: format: Invalid value: "poem": Unsupported log format`},
	{"manager", []string{"--teardown=perhaps"}, `invalid argument "perhaps" for "--teardown" flag`},
	{"kubectl-mend", []string{"status", "--output=pictures"}, `--output "pictures": expected go-template, go-template-file, json, jsonpath, jsonpath-as-json, jsonpath-file, kyaml, template, templatefile, wide or yaml`},
	{"kubectl-mend", []string{"status", "--from=none.json"}, `read the record: open none.json: no such file or directory`},
	{"kubectl-mend", []string{"explain", "m"}, `"m": expected machine/NAME, node/NAME, host/NAME, mhc/NAME, nhc/NAME`},
	{"kubectl-mend", []string{"explain", "lease/m"}, `"lease/m": there is no kind "lease" here: expected machine/NAME, node/NAME`},
	{"kubectl-mend", []string{"history", "--since=yesterday"}, `invalid argument "yesterday" for "--since" flag: not a valid duration string: "yesterday"`},
	{"kubectl-mend", []string{"mend"}, `there is no command "mend"`},
}

func TestAProgramRefusesInvalidFlags(t *testing.T) {
	for _, row := range flags {
		t.Run(row.program+" "+strings.Join(row.args, " "), func(t *testing.T) {
			said, err := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", row.program), row.args...).CombinedOutput()
			var ended *exec.ExitError
			if !errors.As(err, &ended) {
				t.Fatalf("%v: run make build\n%s", err, said)
			}
			if !strings.Contains(string(said), row.says) || strings.Contains(string(said), "goroutine ") {
				t.Errorf("it says, with %v: %s; want %s", err, said, row.says)
			}
		})
	}
}

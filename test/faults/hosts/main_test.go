package hosts

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kubemend/kubemend/test/faults"
)

// histories is how many histories of each kind are played. A single one is rare enough that a hundred, which rapid plays by itself, find
// little.
const histories = 1000

// sampled is how many are played otherwise, each time others.
const sampled = 100

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // what the controllers log is no result
	debug.SetGCPercent(800)        // hardly anything lives long
	if err := playMore(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// playMore asks rapid for as many histories, unless the command line says how many (-rapid.checks) or which others (-rapid.seed).
func playMore() error {
	flag.Parse()
	set := map[string]string{"rapid.checks": strconv.Itoa(histories), "rapid.seed": "14"} // the same ones in each whole campaign
	if !faults.Whole() {
		set = map[string]string{"rapid.checks": strconv.Itoa(sampled), "rapid.seed": strconv.FormatUint(faults.Seed(), 10)}
	}
	flag.Visit(func(f *flag.Flag) { delete(set, f.Name) })
	if testing.Short() {
		return nil
	}
	for name, value := range set {
		if err := flag.Set(name, value); err != nil {
			return fmt.Errorf("ask for %d histories: %w", histories, err)
		}
	}
	return nil
}

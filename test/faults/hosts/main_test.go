package hosts

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// histories is how many histories of each kind are played. A single one is rare enough that a hundred, which rapid plays by itself, find little.
const histories = 1000

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // what the controllers log is no result
	debug.SetGCPercent(800)        // hardly anything lives long
	if err := playMore(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// playMore asks rapid for as many histories, unless it is told on the command line how many there are to be.
func playMore() error {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if asked || testing.Short() {
		return nil
	}
	// The same ones in each run: who looks for more asks for another seed (-rapid.seed), or for more of them.
	if err := errors.Join(flag.Set("rapid.checks", strconv.Itoa(histories)), flag.Set("rapid.seed", "14")); err != nil {
		return fmt.Errorf("ask for %d histories: %w", histories, err)
	}
	return nil
}

package hosts

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // what the controllers log is no result
	debug.SetGCPercent(800)        // hardly anything lives long
	os.Exit(m.Run())
}

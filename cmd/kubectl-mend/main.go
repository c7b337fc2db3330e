// kubectl-mend is a plugin of kubectl, and of clusterctl: it says why a machine is or is not being remediated, and when the next thing
// happens.
package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // all ways to log in that a kubeconfig may name
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/command"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// version is set by the linker.
var version = "dev"

// garbagePercent is how much garbage may pile up before it is collected, in percent of what is in use. The program lives for a
// second: what it reads of a large cluster is garbage as soon as it is parsed, and to collect it at every turn takes longer
// than the memory is worth.
const garbagePercent = 200

func main() {
	if os.Getenv("GOGC") == "" { // else the user has decided
		debug.SetGCPercent(garbagePercent)
	}
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(text.OnScreen(os.Stderr), nil))) // what libraries log may quote a server
	os.Exit(command.Run(ctrl.SetupSignalHandler(), command.New(streams, calledAs(os.Args[0]), version), streams))
}

// calledAs is how a user has called the program: a plugin's file is named after its host and itself.
func calledAs(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), ".exe")
	if host, plugin, is := strings.Cut(name, "-"); is {
		return host + " " + plugin
	}
	return name
}

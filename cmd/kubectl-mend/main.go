// kubectl-mend is a plugin of kubectl and of clusterctl. It explains why a machine is or is not being remediated, and what happens next.
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

// garbagePercent is the GOGC value of the program. The default of 100 collects garbage too often for a program that runs for a second and
// whose answers from a large cluster become garbage as soon as they are parsed.
const garbagePercent = 200

func main() {
	if os.Getenv("GOGC") == "" { // a user's own GOGC wins
		debug.SetGCPercent(garbagePercent)
	}
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(text.OnScreen(os.Stderr), nil))) // libraries may log text from a server: escape it
	os.Exit(command.Run(ctrl.SetupSignalHandler(), command.New(streams, calledAs(os.Args[0]), version), streams))
}

// calledAs returns how a user calls the plugin whose file is given: "kubectl mend" for kubectl-mend, "clusterctl mend" for clusterctl-mend.
func calledAs(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), ".exe")
	if host, plugin, is := strings.Cut(name, "-"); is {
		return host + " " + plugin
	}
	return name
}

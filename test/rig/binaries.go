package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	module           = "github.com/kubemend/kubemend"
	clusterAPIModule = "sigs.k8s.io/cluster-api"

	// BuilderEnv is the environment variable with the process ID of a build in progress. While that process runs, a missing program is
	// waited for.
	BuilderEnv = "KUBEMEND_RIG_BUILDER"
)

// program is the file name of a program that the rig runs. test/rig/build, which make runs, decides where it comes from.
type program string

const (
	etcd              program = "etcd"
	apiServer         program = "kube-apiserver"
	controllerManager program = "kube-controller-manager"
	core              program = "capi-core"
	kubeadm           program = "capi-kubeadm"
	clusterctl        program = "clusterctl"
	kubectl           program = "kubectl"
	reaper            program = "reaper"
)

type binaries string

// binariesOf returns the folder into which make puts the programs of the project at root.
func binariesOf(root string) binaries {
	return binaries(filepath.Join(root, ".rig", "bin"))
}

// find returns the path of a program. It is called only when the program is needed, because few tests need all of them.
func (b binaries) find(p program) (string, error) {
	path := filepath.Join(string(b), string(p))
	for {
		building := underWay(os.Getenv(BuilderEnv)) // before Stat: once the build has ended, all its programs exist
		_, err := os.Stat(path)
		switch {
		case err == nil:
			return path, nil
		case !building:
			return "", fmt.Errorf("find %s, a program of the rig: %w: run make %s", p, err, p.target())
		}
		<-time.After(askEvery)
	}
}

// built waits until no build is in progress: a program that exists before that may be out of date.
func built(ctx context.Context) error {
	for underWay(os.Getenv(BuilderEnv)) {
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return fmt.Errorf("wait for programs that are being built: %w", ctx.Err())
		}
	}
	return nil
}

// underWay reports whether a process with this ID exists.
func underWay(pid string) bool {
	id, err := strconv.Atoi(pid)
	return err == nil && id > 0 && syscall.Kill(id, 0) == nil
}

// target is the smallest make target that builds the program.
func (p program) target() string {
	switch p {
	case clusterctl, kubectl, kubeadm:
		return "rig"
	default:
		return "rig-control-planes"
	}
}

// moduleRoot finds this project's go.mod from the working folder upwards, and skips the go.mod of tool modules.
var moduleRoot = sync.OnceValues(func() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working folder: %w", err)
	}
	for folder := start; ; folder = filepath.Dir(folder) {
		content, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("read go.mod: %w", err)
		}
		if strings.HasPrefix(string(content), "module "+module+"\n") {
			return folder, nil
		}
		if folder == filepath.Dir(folder) {
			return "", fmt.Errorf("find the go.mod of %s: neither %s nor a folder above it has one", module, start)
		}
	}
})

// clusterAPI is the folder of the Cluster API module in go.mod. Manifests are read from there, so they have the same version as the types.
var clusterAPI = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return dependency(root, clusterAPIModule)
})

// providers is the folder of the module with Cluster API's docker provider, which has the in-memory infrastructure. Its version is in the
// go.mod of test/rig/capi.
var providers = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return dependency(filepath.Join(root, "test", "rig", "capi"), clusterAPIModule+"/test")
})

// dependency returns the folder of a module in the version of the go.mod in folder.
func dependency(folder, name string) (string, error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", name)
	list.Dir = folder
	var said strings.Builder
	list.Stderr = &said
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w: %s", name, err, strings.TrimSpace(said.String()))
	}
	found := strings.TrimSpace(string(out))
	if found == "" {
		return "", fmt.Errorf("find module %s: it is not downloaded: run go mod download in %s", name, folder)
	}
	return found, nil
}

// ClusterctlProgram returns the path of clusterctl.
func ClusterctlProgram() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return binariesOf(root).find(clusterctl)
}

// Clusterctl runs clusterctl, in the version of Cluster API in go.mod, and returns its standard output; its standard error is in the error.
// Its only configuration is the file config: it sees nothing of the user's home or environment, and does not check for a newer version. The
// caller passes the kubeconfig in args.
func Clusterctl(ctx context.Context, config string, args ...string) ([]byte, error) {
	program, err := ClusterctlProgram()
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp("", "kubemend-clusterctl-")
	if err != nil {
		return nil, fmt.Errorf("make a home for clusterctl: %w", err)
	}
	defer func() { _ = os.RemoveAll(home) }()
	command := exec.CommandContext(ctx, program, append(args, "--config", config)...)
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_CACHE_HOME=" + home,
		"CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off",
	}
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("clusterctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}

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

	// BuilderEnv is the process ID of a build of programs that is still under way: one that is missing is waited for until that process is
	// gone.
	BuilderEnv = "KUBEMEND_RIG_BUILDER"
)

// program is the file name of one of the programs that the rig runs. Where each comes from is decided by test/rig/build, which make runs.
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

// binaries is the folder with the programs.
type binaries string

// binariesOf is the folder where make puts the programs of the project at root.
func binariesOf(root string) binaries {
	return binaries(filepath.Join(root, ".rig", "bin"))
}

// find returns the path of a program. It is asked when the program is needed: not every test needs all of them.
func (b binaries) find(p program) (string, error) {
	path := filepath.Join(string(b), string(p))
	for {
		building := underWay(os.Getenv(BuilderEnv)) // asked first: what it builds is there when it is gone
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

// built waits until no build of programs is under way any more. What was there before it may be old.
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

// underWay reports whether there is a process of this ID.
func underWay(pid string) bool {
	id, err := strconv.Atoi(pid)
	return err == nil && id > 0 && syscall.Kill(id, 0) == nil
}

// target is the smallest target of make that provides the program.
func (p program) target() string {
	switch p {
	case clusterctl, kubectl, kubeadm:
		return "rig"
	default:
		return "rig-control-planes"
	}
}

// moduleRoot walks up from the working folder to this project's go.mod, past those of the tool modules.
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

// clusterAPI is the folder of the Cluster API module that go.mod asks for; its manifests are read from there, so that
// they are of the same version as the types.
var clusterAPI = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return dependency(root, clusterAPIModule)
})

// providers is the folder of the module with Cluster API's docker provider, which has the in-memory infrastructure. It is not one that
// go.mod asks for.
var providers = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return dependency(filepath.Join(root, "test", "rig", "capi"), clusterAPIModule+"/test")
})

// dependency is the folder of a module that the go.mod in a folder asks for.
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

// ClusterctlProgram is the file of clusterctl.
func ClusterctlProgram() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return binariesOf(root).find(clusterctl)
}

// Clusterctl runs clusterctl, of the version of Cluster API that go.mod asks for, and returns what it writes to its standard output. What
// it writes to its standard error is in the error. The file config is the only configuration it sees: nothing of the user's own, no other
// providers' variables, no look for a newer version of itself. Arguments that name a kubeconfig are the caller's.
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

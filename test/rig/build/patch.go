package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// patch changes one file of a dependency: it replaces the text old, which must occur exactly times times, by new. It is for code that our
// main functions cannot configure. `go build -overlay` is no alternative: it refuses files of the module cache.
type patch struct {
	dependency, file string
	old, new         string
	times            int
}

// loopback makes the in-memory backend of Cluster API's docker provider listen on loopback instead of all addresses: for its debugging
// page, and in two places for the API server of a cluster. The backend has a flag only for the address that it advertises.
var loopback = patch{
	dependency: "sigs.k8s.io/cluster-api/test", file: "infrastructure/inmemory/pkg/server/mux.go",
	old: `net.Listen("tcp", fmt.Sprintf(":%d"`, new: `net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d"`, times: 3,
}

// apply changes the content of the file. It fails if old is not there as often as times says, or its function is called elsewhere: a new
// version of the dependency must not listen on other addresses unnoticed.
func (p patch) apply(content string) (string, error) {
	call, _, _ := strings.Cut(p.old, "(")
	if found := strings.Count(content, p.old); found != p.times || strings.Count(content, call+"(") != p.times {
		return "", fmt.Errorf("change %s of %s: it has %q %d times, not %d times, or calls %s elsewhere",
			p.file, p.dependency, p.old, found, p.times, call)
	}
	return strings.ReplaceAll(content, p.old, p.new), nil
}

// patched writes a changed copy of the dependency into a folder, and a go.mod that replaces the dependency by the copy. It returns that
// go.mod.
func (b *builder) patched(ctx context.Context, from module, into string) (string, error) {
	p := from.patch
	folder := filepath.Join(b.root, from.folder)
	found, err := download(ctx, folder, p.dependency)
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(into); err != nil {
		return "", fmt.Errorf("remove an older copy of %s: %w", p.dependency, err)
	}
	into, err = filepath.Abs(into)
	if err != nil {
		return "", fmt.Errorf("find the folder for %s: %w", p.dependency, err)
	}
	copied := filepath.Join(into, "copy")
	if err := os.CopyFS(copied, os.DirFS(found)); err != nil {
		return "", fmt.Errorf("copy %s: %w", p.dependency, err)
	}
	if err := p.change(copied); err != nil {
		return "", err
	}
	goMod := filepath.Join(into, "go.mod")
	replaces := fmt.Sprintf("\nreplace %s => %s\n", p.dependency, copied)
	return goMod, errors.Join(
		copyFile(filepath.Join(folder, "go.mod"), goMod, replaces),
		copyFile(filepath.Join(folder, "go.sum"), filepath.Join(into, "go.sum"), ""))
}

func (p patch) change(folder string) error {
	file := filepath.Join(folder, p.file)
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("change %s of %s: %w", p.file, p.dependency, err)
	}
	changed, err := p.apply(string(content))
	if err != nil {
		return err
	}
	// Files of the module cache are read-only, and so are their copies.
	if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte(changed), 0o600)); err != nil {
		return fmt.Errorf("change %s of %s: %w", p.file, p.dependency, err)
	}
	return nil
}

func copyFile(from, to, more string) error {
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, append(content, more...), 0o600)
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// download downloads a dependency of the module in folder if necessary, and returns the dependency's folder.
func download(ctx context.Context, folder, dependency string) (string, error) {
	if err := run(ctx, folder, goCommand(), "mod", "download", dependency); err != nil {
		return "", err
	}
	list := exec.CommandContext(ctx, goCommand(), "list", "-m", "-f", "{{.Dir}}", dependency)
	list.Dir, list.Stderr = folder, os.Stderr
	found, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", dependency, err)
	}
	return strings.TrimSpace(string(found)), nil
}

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// builder provides programs. Their builds are in .rig/built. .rig/bin has a link to each program, either there or in the assets of envtest,
// so that switching between the two rebuilds nothing.
type builder struct {
	root   string
	assets string
	say    progress
}

func (b *builder) bin() string   { return filepath.Join(b.root, ".rig", "bin") }
func (b *builder) built() string { return filepath.Join(b.root, ".rig", "built") }

// provide makes sure that .rig/bin has all named programs.
func (b *builder) provide(ctx context.Context, names []string) error {
	wanted, err := named(names)
	if err != nil {
		return err
	}
	for _, folder := range []string{b.bin(), b.built()} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("make the folders of the rig: %w", err)
		}
	}
	var modules []module
	stale := map[module][]program{}
	for _, p := range wanted {
		fresh, err := b.settled(ctx, p)
		if err != nil {
			return err
		}
		if fresh {
			continue
		}
		if len(stale[p.from]) == 0 {
			modules = append(modules, p.from)
		}
		stale[p.from] = append(stale[p.from], p)
	}
	for _, from := range modules {
		if err := b.build(ctx, stale[from]); err != nil {
			return err
		}
	}
	return nil
}

// settled links a program that needs no build, and reports whether there is one: in the assets, or a build whose inputs have not changed.
func (b *builder) settled(ctx context.Context, p program) (bool, error) {
	asset, version, why, err := b.asset(ctx, p)
	if err != nil {
		return false, err
	}
	if asset != "" {
		changed, err := b.link(p, asset)
		if changed {
			b.say.line("taking %s %s from %s", p.name, version, assetsEnv)
		}
		return true, err
	}
	inputs, err := b.inputs(p)
	if err != nil {
		return false, err
	}
	if recorded, err := os.ReadFile(b.record(p)); err == nil && string(recorded) == inputs {
		if _, err := os.Stat(filepath.Join(b.built(), p.name)); err == nil {
			_, err := b.link(p, filepath.Join("..", "built", p.name))
			return true, err
		}
	}
	if why != "" {
		b.say.line("%s %s: building it", assetsEnv, why)
	}
	return false, nil
}

// link makes .rig/bin link to target, and reports whether the link changed.
func (b *builder) link(p program, target string) (bool, error) {
	link := filepath.Join(b.bin(), p.name)
	if now, err := os.Readlink(link); err == nil && now == target {
		return false, nil
	}
	made := fmt.Sprintf("%s.%d", link, os.Getpid())
	if err := os.Symlink(target, made); err != nil {
		return false, fmt.Errorf("link %s: %w", p.name, err)
	}
	if err := os.Rename(made, link); err != nil {
		return false, errors.Join(fmt.Errorf("link %s: %w", p.name, err), remove(made))
	}
	return true, nil
}

// record is the file with the inputs of the last build of a program.
func (b *builder) record(p program) string { return filepath.Join(b.built(), p.name+".inputs") }

// inputs returns a hash of everything that determines a program except the Go toolchain.
func (b *builder) inputs(p program) (string, error) {
	folder := filepath.Join(b.root, p.from.folder)
	files := []string{filepath.Join(folder, "go.mod"), filepath.Join(folder, "go.sum")}
	for _, pattern := range p.sources {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return "", fmt.Errorf("find the sources of %s: %w", p.name, err)
		}
		files = append(files, slices.DeleteFunc(found, func(file string) bool { return strings.HasSuffix(file, "_test.go") })...)
	}
	flags, err := p.from.flags(b.root)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, p.builds, flags) // a hash never fails
	if p.from.patch.times > 0 {
		_, _ = fmt.Fprintln(sum, p.from.patch)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read what %s is built from: %w", p.name, err)
		}
		_, _ = fmt.Fprintf(sum, "%s %x\n", filepath.Base(file), sha256.Sum256(content))
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// build builds programs of one module with one command. They are built in a temporary folder and moved at the end, so an interrupted build
// leaves no file that looks finished.
func (b *builder) build(ctx context.Context, stale []program) (err error) {
	part, err := os.MkdirTemp(b.built(), "part-")
	if err != nil {
		return fmt.Errorf("make a folder to build in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(part)) }()

	var names []string
	var usually time.Duration
	for _, p := range stale {
		names = append(names, p.name)
		usually += p.usually
		if err := remove(filepath.Join(b.bin(), p.name)); err != nil { // otherwise the old program would look finished
			return err
		}
	}
	return b.say.during(ctx, strings.Join(names, ", "), usually, func(ctx context.Context) error {
		if err := b.make(ctx, stale, part); err != nil {
			return err
		}
		for _, p := range stale {
			if err := b.finish(p, part); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *builder) make(ctx context.Context, stale []program, into string) error {
	first := stale[0]
	flags, err := first.from.flags(b.root)
	if err != nil {
		return err
	}
	into, err = filepath.Abs(into)
	if err != nil {
		return fmt.Errorf("find the folder to build in: %w", err)
	}
	args := []string{goCommand(), "build", "-ldflags", flags, "-o", into + string(filepath.Separator)}
	if first.from.patch.times > 0 {
		goMod, err := b.patched(ctx, first.from, filepath.Join(b.root, ".rig", "patched"))
		if err != nil {
			return err
		}
		args = append(args, "-modfile", goMod)
	}
	for _, p := range stale {
		args = append(args, p.builds)
	}
	return run(ctx, filepath.Join(b.root, first.from.folder), args...)
}

// finish moves a program into place. It removes the old record first and writes the new one last, because a program without a record is
// built again.
func (b *builder) finish(p program, from string) error {
	inputs, err := b.inputs(p)
	if err != nil {
		return err
	}
	output := p.output
	if output == "" {
		output = p.name
	}
	if err := remove(b.record(p)); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(from, output), filepath.Join(b.built(), p.name)); err != nil {
		return fmt.Errorf("put %s in place: %w", p.name, err)
	}
	if _, err := b.link(p, filepath.Join("..", "built", p.name)); err != nil {
		return err
	}
	if err := os.WriteFile(b.record(p), []byte(inputs), 0o600); err != nil {
		return fmt.Errorf("put %s in place: %w", p.name, err)
	}
	return nil
}

func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove what is out of date: %w", err)
	}
	return nil
}

func goCommand() string {
	if command := os.Getenv("GO"); command != "" {
		return command
	}
	return "go"
}

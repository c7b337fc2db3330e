// Command archive packs files as .tar.gz or .zip, by the name of the archive, for users who install them by hand or with krew.
//
// The same files and time give the same bytes: entries are sorted, have no owner, and one of two modes.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name    string
	mode    fs.FileMode
	content []byte
}

func main() {
	seconds := flag.Int64("created", 0, "when, in seconds since 1970; usually the time of the commit")
	out := flag.String("out", "", "archive to write; its name ends with .tar.gz or .zip")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: archive [flags] NAME=FILE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(time.Unix(*seconds, 0).UTC(), *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "archive:", err)
		os.Exit(1)
	}
}

func run(created time.Time, out string, args []string) error {
	if len(args) == 0 {
		return errors.New("nothing to pack: at least one NAME=FILE is needed")
	}
	entries, err := read(args)
	if err != nil {
		return err
	}
	var content bytes.Buffer // so that no incomplete archive is written
	switch {
	case strings.HasSuffix(out, ".tar.gz"):
		err = tarOf(&content, created, entries)
	case strings.HasSuffix(out, ".zip"):
		err = zipOf(&content, created, entries)
	default:
		return fmt.Errorf("-out %q: the name ends neither with .tar.gz nor with .zip", out)
	}
	if err != nil {
		return fmt.Errorf("pack %s: %w", out, err)
	}
	if err := os.WriteFile(out, content.Bytes(), readable); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	fmt.Println(out)
	return nil
}

// The modes of entries, whatever the modes on the build machine are.
const (
	readable   = 0o644
	executable = 0o755
)

// read reads the files of arguments NAME=FILE, sorted by name.
func read(args []string) ([]entry, error) {
	entries := make([]entry, 0, len(args))
	for _, arg := range args {
		name, file, found := strings.Cut(arg, "=")
		if !found || name != path.Base(path.Clean(name)) || name == "." || name == ".." {
			return nil, fmt.Errorf("%q is not NAME=FILE", arg)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read what is packed: %w", err)
		}
		info, err := os.Stat(file)
		if err != nil {
			return nil, fmt.Errorf("read what is packed: %w", err)
		}
		is := entry{name, readable, content}
		if info.Mode()&0o111 != 0 {
			is.mode = executable
		}
		entries = append(entries, is)
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	for i := range entries[1:] {
		if entries[i].name == entries[i+1].name {
			return nil, fmt.Errorf("there are two files of the name %q", entries[i].name)
		}
	}
	return entries, nil
}

func tarOf(out io.Writer, created time.Time, entries []entry) error {
	packed, err := gzip.NewWriterLevel(out, gzip.BestCompression) // gzip writes no time and no name unless they are set
	if err != nil {
		return err
	}
	w := tar.NewWriter(packed)
	for _, e := range entries {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode), Size: int64(len(e.content)), ModTime: created, Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(e.content); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), packed.Close())
}

func zipOf(out io.Writer, created time.Time, entries []entry) error {
	w := zip.NewWriter(out)
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: created}
		header.SetMode(e.mode)
		to, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := to.Write(e.content); err != nil {
			return err
		}
	}
	return w.Close()
}

// Command image makes a container image of the manager for several platforms, as an archive in the OCI image layout.
//
// It needs no container engine, no registry, and no files of the build machine. The image contains the program and the files of distroless
// images, which come from Go modules. The same programs, version and time give the same bytes.
package main

import (
	"archive/tar"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// release is the metadata of the image.
type release struct {
	name, version, revision string
	created                 time.Time
	licences                []string // files that are added to the image
	inventory               string   // file with the inventory of the programs, or empty
}

func main() {
	var r release
	flag.StringVar(&r.name, "name", "ghcr.io/kubemend/kubemend", "name of the image, without a tag")
	flag.StringVar(&r.version, "version", "dev", "version of the program, and tag of the image")
	flag.StringVar(&r.revision, "revision", "", "commit that the program was built from")
	licences := flag.String("licenses", "", "files with the licences of what is in the program, with commas between them")
	flag.StringVar(&r.inventory, "inventory", "", "SPDX document to attach, which lists what is in the programs")
	seconds := flag.Int64("created", 0, "when, in seconds since 1970; usually the time of the commit")
	out := flag.String("out", "", "archive to write")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: image [flags] ARCHITECTURE=PROGRAM...")
		flag.PrintDefaults()
	}
	flag.Parse()
	r.created, r.licences = time.Unix(*seconds, 0).UTC(), strings.FieldsFunc(*licences, func(c rune) bool { return c == ',' })
	if err := run(r, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(r release, out string, programs []string) error {
	if out == "" || len(programs) == 0 {
		return errors.New("nothing to do: -out and at least one ARCHITECTURE=PROGRAM are needed")
	}
	index, err := indexOf(r, programs)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("sum up the image: %w", err)
	}
	folder, err := os.MkdirTemp("", "kubemend-image-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	// `docker load` and `ctr images import` use the first name, `skopeo` and `oras` the second.
	named := layout.WithAnnotations(map[string]string{
		"io.containerd.image.name": qualified(r.name) + ":" + r.version, "org.opencontainers.image.ref.name": r.version,
	})
	if err := path.AppendIndex(index, named); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	if err := archive(folder, out, r.created); err != nil {
		return err
	}
	fmt.Printf("%s\n%s:%s@%s\n", out, r.name, r.version, digest)
	return nil
}

// qualified returns the name with its registry, as engines complete it.
func qualified(name string) string {
	if first, _, nested := strings.Cut(name, "/"); nested && strings.ContainsAny(first, ".:") {
		return name
	}
	return "docker.io/" + name
}

// indexOf returns an index with one image for each program, given as ARCHITECTURE=PATH.
func indexOf(r release, programs []string) (v1.ImageIndex, error) {
	base, err := baseLayer(r.created, r.licences)
	if err != nil {
		return nil, fmt.Errorf("make the base layer: %w", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var attestations []mutate.IndexAddendum
	for _, program := range programs {
		architecture, path, found := strings.Cut(program, "=")
		if !found {
			return nil, fmt.Errorf("%q is not ARCHITECTURE=PROGRAM", program)
		}
		image, err := imageOf(r, architecture, path, base)
		if err != nil {
			return nil, fmt.Errorf("make the image for %s: %w", architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
		if r.inventory == "" {
			continue
		}
		digest, err := image.Digest()
		if err != nil {
			return nil, fmt.Errorf("sum up the image for %s: %w", architecture, err)
		}
		attached, err := attestation(r, digest)
		if err != nil {
			return nil, fmt.Errorf("attach the inventory to the image for %s: %w", architecture, err)
		}
		attestations = append(attestations, attached)
	}
	index = mutate.AppendManifests(index, attestations...)
	return mutate.Annotations(index, r.labels()).(v1.ImageIndex), nil
}

func imageOf(r release, architecture, path string, base v1.Layer) (v1.Image, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	program, err := layerOf(r.created, []file{{name: "manager", mode: 0o755, content: content}})
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, base, program); err != nil {
		return nil, fmt.Errorf("put the layers together: %w", err)
	}
	image, err = mutate.ConfigFile(image, r.config(architecture, image))
	if err != nil {
		return nil, fmt.Errorf("describe the image: %w", err)
	}
	return mutate.Annotations(image, r.labels()).(v1.Image), nil
}

// config is how to run the image: as the user "nonroot" of distroless images. The user is a number, because the kubelet cannot verify
// runAsNonRoot for a name.
func (r release) config(architecture string, image v1.Image) *v1.ConfigFile {
	made, err := image.ConfigFile()
	if err != nil {
		made = &v1.ConfigFile{}
	}
	own := made.DeepCopy()
	own.OS, own.Architecture, own.Created = "linux", architecture, v1.Time{Time: r.created}
	for i := range own.History {
		own.History[i].Created, own.History[i].CreatedBy = own.Created, "hack/release/image"
	}
	own.Config = v1.Config{
		Entrypoint: []string{"/manager"}, User: "65532:65532", WorkingDir: "/", Labels: r.labels(),
		Env: []string{"PATH=/", "SSL_CERT_FILE=/" + certificates},
	}
	return own
}

func (r release) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       "kubemend",
		"org.opencontainers.image.description": "Detects unhealthy Cluster API Machines and Kubernetes Nodes and remediates them",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      "https://github.com/kubemend/kubemend",
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.created":     r.created.Format(time.RFC3339),
	}
	if r.revision != "" {
		labels["org.opencontainers.image.revision"] = r.revision
	}
	return labels
}

// archive packs a folder into a tar file, sorted by name.
func archive(folder, out string, modified time.Time) error {
	to, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	defer func() { _ = to.Close() }()
	w := tar.NewWriter(to)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return add(w, folder, path, modified)
	})
	if err := errors.Join(err, w.Close(), to.Close()); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

func add(w *tar.Writer, folder, path string, modified time.Time) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(folder, path)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: info.Size(), ModTime: modified}); err != nil {
		return err
	}
	_, err = io.Copy(w, from)
	return err
}

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
)

// The parts of a manifest that the project uses. sigs.k8s.io/yaml sorts them by name.
type manifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec spec `json:"spec"`
}

type spec struct {
	Version          string     `json:"version"`
	Homepage         string     `json:"homepage"`
	ShortDescription string     `json:"shortDescription"`
	Description      string     `json:"description"`
	Caveats          string     `json:"caveats"`
	Platforms        []platform `json:"platforms"`
}

type platform struct {
	Selector struct {
		MatchLabels struct {
			OS           string `json:"os"`
			Architecture string `json:"arch"`
		} `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Files  []move `json:"files"`
	Bin    string `json:"bin"`
}

// move is a file of the archive, and its path below the folder of the plugin.
type move struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// filesIn returns the names of the files in an archive, in its order.
func filesIn(name string, content []byte) ([]string, error) {
	if strings.HasSuffix(name, ".zip") {
		return filesInZip(content)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	var names []string
	for r := tar.NewReader(unpacked); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag == tar.TypeReg {
			names = append(names, header.Name)
		}
	}
}

func filesInZip(content []byte) ([]string, error) {
	r, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(r.File))
	for _, file := range r.File {
		if !file.FileInfo().IsDir() {
			names = append(names, file.Name)
		}
	}
	return names, nil
}

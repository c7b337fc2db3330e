// Command dashboards writes the dashboards for Grafana: one for the fleet, one for a single check, one for a single host.
//
// It knows only Grafana's format. test/observability checks the expressions and metrics in the written files.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	folder := flag.String("out", ".", "folder that the dashboards are written to")
	flag.Parse()
	for name, d := range map[string]dashboard{"fleet": fleet(), "check": check(), "host": host()} {
		if err := write(filepath.Join(*folder, name+".json"), d); err != nil {
			fmt.Fprintln(os.Stderr, "dashboards:", err)
			os.Exit(1)
		}
	}
}

func write(file string, d dashboard) error {
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	encoder.SetEscapeHTML(false) // keep <, > and & readable in diffs
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(d); err != nil {
		return fmt.Errorf("encode dashboard %s: %w", d.Title, err)
	}
	if err := os.WriteFile(file, content.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write dashboard %s: %w", d.Title, err)
	}
	return nil
}

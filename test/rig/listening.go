package rig

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Listening are the addresses that the programs of the rig listen on. Only Linux reports them.
func (r *Rig) Listening() ([]string, error) {
	ours := map[string]bool{}
	for _, process := range processesOf(r.folder) {
		handles, _ := filepath.Glob("/proc/" + process + "/fd/*") // only a bad pattern is an error
		for _, handle := range handles {
			to, _ := os.Readlink(handle) // a connection may be closed meanwhile
			if inode, ok := strings.CutPrefix(to, "socket:["); ok {
				ours[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	var found []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		content, err := os.ReadFile(table)
		if err != nil && len(ours) > 0 {
			return nil, fmt.Errorf("read who listens: %w", err)
		}
		for line := range bytes.Lines(content) {
			const address, state, inode, listening = 1, 3, 9, "0A"
			words := strings.Fields(string(line))
			if len(words) <= inode || words[state] != listening || !ours[words[inode]] {
				continue
			}
			at, err := addressOf(words[address])
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", table, err)
			}
			found = append(found, at)
		}
	}
	return found, nil
}

// addressOf is an address as the kernel writes it: four bytes at a time, the last one first, and the port.
func addressOf(kernel string) (string, error) {
	host, port, _ := strings.Cut(kernel, ":")
	ip, err := hex.DecodeString(host)
	if err != nil {
		return "", fmt.Errorf("address %q: %w", kernel, err)
	}
	for word := range slices.Chunk(ip, 4) {
		slices.Reverse(word)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return "", fmt.Errorf("port of %q: %w", kernel, err)
	}
	return net.JoinHostPort(net.IP(ip).String(), strconv.FormatUint(n, 10)), nil
}

// processesOf are the numbers of the processes that were started with the folder on their command line: everything that
// a rig runs is. Only Linux reports that.
func processesOf(folder string) []string {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // only a bad pattern is an error
	var found []string
	for _, line := range lines {
		content, err := os.ReadFile(line)
		if err == nil && bytes.Contains(content, []byte(folder)) {
			found = append(found, filepath.Base(filepath.Dir(line)))
		}
	}
	return found
}

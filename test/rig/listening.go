package rig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Listening counts the sockets on which the programs of the rig listen, and names the addresses of those that are not on loopback, as the kernel
// writes them. Only Linux reports them.
func (r *Rig) Listening() (sockets int, exposed []string, err error) {
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
	for table, loopback := range map[string]string{"/proc/net/tcp": "0100007F:", "/proc/net/tcp6": strings.Repeat("0", 24) + "01000000:"} {
		content, err := os.ReadFile(table)
		if err != nil && len(ours) > 0 {
			return 0, nil, fmt.Errorf("read who listens: %w", err)
		}
		for line := range bytes.Lines(content) {
			const address, state, inode, listening = 1, 3, 9, "0A"
			words := strings.Fields(string(line))
			if len(words) <= inode || words[state] != listening || !ours[words[inode]] {
				continue
			}
			sockets++
			if !strings.HasPrefix(words[address], loopback) {
				exposed = append(exposed, words[address])
			}
		}
	}
	return sockets, exposed, nil
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

//go:build unix && !linux

package main

import "syscall"

// attributes give the program its own process group. Only Linux can also tie its life to reaper's.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

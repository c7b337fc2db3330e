//go:build unix && !linux

package main

import "syscall"

// attributes gives the program its own process group. Only Linux can also kill it when the reaper dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

package main

import "syscall"

// attributes gives the program its own process group, and makes the kernel kill it when the reaper dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

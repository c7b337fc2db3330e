package main

import "syscall"

// attributes give the program its own process group, and make the kernel kill it should reaper itself be killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

//go:build tools

// Package tools imports cert-manager so that go.mod has its version. Nothing of it is built: the rig uses its CRDs and does its work
// itself.
package tools

import _ "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"

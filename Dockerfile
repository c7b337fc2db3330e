# syntax=docker/dockerfile:1

FROM --platform=$BUILDPLATFORM golang:1.26 AS builder
WORKDIR /workspace

# The dependencies first, so that a change of our code does not download them again.
COPY go.mod go.sum ./
RUN go mod download

# Every folder with Go code that the manager may need; test/arch_test.go fails when one is missing.
COPY main.go nodehealth.go remediations.go ./
COPY api/ api/
COPY baremetal/ baremetal/
COPY controllers/ controllers/

ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o manager .

# Nothing but the program, and whom to trust when it calls an API server behind a public certificate.
FROM scratch
COPY --from=builder /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=builder /workspace/manager /manager
# As a number: Kubernetes cannot tell from a name that it is not root.
USER 65532:65532
ENTRYPOINT ["/manager"]

//! What a program sees of files, the same on the real tokio and on the package in its place.

use std::{env, io::SeekFrom, process};

use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt},
};

#[tokio::test]
async fn the_error_of_a_write_is_kept_for_the_next_write_or_flush() {
    let path = env::temp_dir().join(format!("beside-fs-{}", process::id()));
    for operation in 0..8 {
        std::fs::write(&path, "0123456789").unwrap();
        let mut file = File::open(&path).await.unwrap();
        // The file is open for reading.
        assert_eq!(file.write(b"x").await.unwrap(), 1);
        let mut buf = [0; 4];
        assert_eq!(file.read(&mut buf).await.unwrap(), 4);
        match operation {
            0 => drop(file.set_len(3).await.unwrap_err()),
            1 => file.sync_all().await.unwrap(),
            2 => file.sync_data().await.unwrap(),
            3 => assert_eq!(file.metadata().await.unwrap().len(), 10),
            4 => assert_eq!(file.seek(SeekFrom::Start(1)).await.unwrap(), 1),
            5 => drop(file.try_clone().await.unwrap()),
            6 => {
                let permissions = file.metadata().await.unwrap().permissions();
                file.set_permissions(permissions).await.unwrap();
            }
            _ => {
                file.into_std().await;
                continue;
            }
        }
        let error = if operation % 2 == 0 {
            file.flush().await.unwrap_err()
        } else {
            file.write(b"x").await.unwrap_err()
        };
        assert_eq!(error.kind(), std::io::Error::from_raw_os_error(9).kind());
        file.flush().await.unwrap();
    }
    std::fs::remove_file(&path).unwrap();
}
